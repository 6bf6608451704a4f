import { useQuery, useQueryClient } from "@tanstack/react-query";
import type { SessionView } from "holdfast-client";
import { Problem } from "holdfast-client";
import { type FormEvent, type ReactNode, createContext, useContext, useEffect, useState } from "react";
import { client, onSignedOut, reasonOf } from "./api.ts";
import { Icon } from "./icons.tsx";
import { Skeleton } from "./parts.tsx";

const Sessions = createContext<SessionView | undefined>(undefined);

/** Returns who is signed in, and what they may do. */
export function useSession(): SessionView & { may: (action: string) => boolean } {
  const session = useContext(Sessions);
  if (!session) throw new Error("this part of the page needs a session");
  return { ...session, may: (action) => (session.actions as string[]).includes(action) };
}

const PRINTED = /^#token=([\w-]{1,200})$/;

/** Shows the dashboard to people with a session, and the sign-in to others. */
export function SignedIn({ children }: { children: ReactNode }): ReactNode {
  const queries = useQueryClient();
  const [wasIn, setWasIn] = useState(false);
  const session = useQuery({ queryKey: ["session"], queryFn: open, refetchInterval: false, staleTime: Infinity });
  useEffect(
    () =>
      onSignedOut(() => {
        if (queries.getQueryData(["session"])) {
          setWasIn(true);
          queries.clear();
          void queries.invalidateQueries({ queryKey: ["session"] });
        }
      }),
    [queries],
  );
  if (session.data) return <Sessions value={session.data}>{children}</Sessions>;
  if (session.isPending) return <Skeleton />;
  const isRefused = session.error instanceof Problem && session.error.status === 401;
  const reason = wasIn ? "Your session has ended. Sign in again." : isRefused ? "" : reasonOf(session.error);
  return <SignIn reason={reason} onDone={(found) => queries.setQueryData(["session"], found)} />;
}

/** Returns the session. A token in the address opens one; it is removed from the address first. */
async function open(): Promise<SessionView> {
  const token = PRINTED.exec(location.hash)?.[1];
  if (token) {
    history.replaceState(null, "", location.pathname + location.search);
    try {
      return await client.openSession({ token });
    } catch (error) {
      if (!(error instanceof Problem && error.status === 401)) throw error;
    }
  }
  return await client.getSession();
}

function SignIn({ reason, onDone }: { reason: string; onDone: (session: SessionView) => void }): ReactNode {
  const [key, setKey] = useState("");
  const [problem, setProblem] = useState(reason);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    try {
      onDone(await client.openSession({ key: key.trim() }));
    } catch (error) {
      setProblem(reasonOf(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <main className="sign-in">
      <form onSubmit={(event) => void submit(event)}>
        <h1>Holdfast</h1>
        <p>Sign in with a key of the API. What you may do here is what the key may do.</p>
        {problem && (
          <p className="notice notice-failed" role="alert">
            <Icon name="warn" />
            <span>{problem}</span>
          </p>
        )}
        <label htmlFor="key">Key</label>
        <input id="key" type="password" autoComplete="current-password" autoFocus required value={key} placeholder="hf_…" onChange={(event) => setKey(event.target.value)} />
        <button type="submit" className="primary" disabled={isBusy || key.trim() === ""}>
          Sign in
        </button>
        <p className="quiet">
          No key yet? <code>holdfast keys create --role viewer --app APP</code> makes one. In development, <code>holdfast up --port</code> prints an
          address that needs none.
        </p>
      </form>
    </main>
  );
}
