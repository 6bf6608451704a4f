import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import type { DeadLetterGroupView, DeadLetterView } from "holdfast-client";
import { type FormEvent, type ReactNode, useId, useMemo, useRef, useState } from "react";
import { client, now, reasonOf } from "../api.ts";
import { type DeadFilter, FIELDS, causesOf, describe, ownersOf, readFilter, sentenceOf, toApi } from "../dead.ts";
import { CAUSES } from "../dead-count.tsx";
import { Icon } from "../icons.tsx";
import { useLive } from "../live.tsx";
import { OperationProgress } from "../operations.tsx";
import { Empty, Failure, Link, Sheet, Skeleton, Time, useKeys, useNow, useToast } from "../parts.tsx";
import { Planner } from "../planner.tsx";
import { setQuery, usePlace } from "../router.ts";
import { useSession } from "../session.tsx";

const PAGE = 50;
const SHOWN = 12;
/** Beyond this many pages, what is loaded stands still, as on the page of jobs. */
const FOLLOWED = 2;

export function DeadPage(): ReactNode {
  const { query } = usePlace();
  const text = query.toString();
  const { filter, problem } = useMemo(() => readFilter(new URLSearchParams(text)), [text]);
  return (
    <>
      <h1>Dead letters</h1>
      {!problem && <Sentence filter={filter} text={text} />}
      <FilterBar key={`filter ${text}`} filter={filter} problem={problem} />
      <Plans />
      {!problem && (
        <>
          <Causes filter={filter} text={text} />
          <Letters key={`letters ${text}`} filter={filter} text={text} />
        </>
      )}
    </>
  );
}

function useCauses(filter: DeadFilter, text: string) {
  const { every } = useLive();
  const { code, task, queue, owner } = filter;
  return useQuery({
    queryKey: ["dead", "causes", text],
    queryFn: () => client.listDeadLetterGroups({ code, task, queue, owner, limit: CAUSES }),
    refetchInterval: every,
  });
}

function Sentence({ filter, text }: { filter: DeadFilter; text: string }): ReactNode {
  const asked = useCauses(filter, text);
  const current = useNow();
  if (!asked.data) return asked.error ? <Failure asked={[asked]} /> : <Skeleton rows={1} />;
  const causes = causesOf(asked.data.groups, filter, current);
  const isFiltered = FIELDS.some((field) => filter[field]);
  return (
    <>
      <div className={`sentence sentence-${causes.length > 0 ? "warn" : "pass"}`} aria-live="polite">
        <Icon name={causes.length > 0 ? "warn" : "complete"} />
        <p>{sentenceOf(causes, current, { isCut: asked.data.groups.length === CAUSES, isFiltered })}</p>
      </div>
      <Failure asked={[asked]} />
    </>
  );
}

// -- the filter -------------------------------------------------------------------------------------------------------
const LABELS: Record<(typeof FIELDS)[number], [string, string]> = {
  code: ["Error code", "NETWORK"],
  cause: ["Cause", "its fingerprint"],
  task: ["Task", "convert"],
  queue: ["Queue", "press"],
  owner: ["Owner", "acme"],
  age: ["Age", ">1h or <30m"],
};

function applyFilter(event: FormEvent<HTMLFormElement>) {
  event.preventDefault();
  const written = new FormData(event.currentTarget);
  setQuery(Object.fromEntries(FIELDS.map((field) => [field, (written.get(field) as string | null)?.trim()])), { replace: false });
}

function FilterBar({ filter, problem }: { filter: DeadFilter; problem: string | undefined }): ReactNode {
  const { owner } = useSession();
  const base = useId();
  const form = useRef<HTMLFormElement>(null);
  useKeys({ "/": () => form.current?.querySelector("input")?.focus() });
  const fields = FIELDS.filter((field) => field !== "owner" || owner === null);
  return (
    <form ref={form} className="filter" role="search" aria-label="Dead letters" onSubmit={applyFilter}>
      {fields.map((field) => (
        <div key={field} className="field">
          <label htmlFor={`${base}-${field}`}>{LABELS[field][0]}</label>
          <input id={`${base}-${field}`} name={field} defaultValue={filter[field]} placeholder={LABELS[field][1]} maxLength={200} autoComplete="off" spellCheck={false} aria-invalid={field === "age" && problem !== undefined} />
        </div>
      ))}
      <span className="buttons">
        <button type="submit">Filter</button>
        {fields.some((field) => filter[field]) && (
          <button type="button" className="plain" onClick={() => setQuery(Object.fromEntries(FIELDS.map((field) => [field, null])), { replace: false })}>
            Show all
          </button>
        )}
      </span>
      {problem && (
        <p className="notice notice-failed" role="alert">
          <Icon name="warn" />
          <span>{problem}</span>
        </p>
      )}
    </form>
  );
}

// -- plans --------------------------------------------------------------------------------------------------------------
const PLANS = 5;
const DAY = 86_400_000;

/** Plans that run, and the last ones that ended today. They are in the store, so a reload and a restart change nothing. */
function Plans(): ReactNode {
  const { every } = useLive();
  const current = useNow();
  const asked = useQuery({ queryKey: ["dead", "plans"], queryFn: () => client.listOperations({ limit: 50 }), refetchInterval: every });
  const plans = (asked.data?.operations ?? [])
    .filter((plan) => plan.action === "redrive" || plan.action === "discard")
    .filter((plan) => plan.progress === "running" || current - Date.parse(plan.updated_at) < DAY)
    .toSorted((one, other) => Number(other.progress === "running") - Number(one.progress === "running"));
  const running = plans.filter((plan) => plan.progress === "running").length;
  if (plans.length === 0) return <Failure asked={[asked]} />;
  return (
    <section aria-labelledby="plans">
      <h2 id="plans">Plans</h2>
      <ul className="cards">
        {plans.slice(0, Math.max(running, PLANS)).map((plan) => (
          <li key={plan.id} className="card">
            <OperationProgress operation={plan} />
          </li>
        ))}
      </ul>
    </section>
  );
}

// -- causes -------------------------------------------------------------------------------------------------------------
function Causes({ filter, text }: { filter: DeadFilter; text: string }): ReactNode {
  const asked = useCauses(filter, text);
  const [isWhole, setWhole] = useState(false);
  const causes = causesOf(asked.data?.groups ?? [], filter, now());
  if (causes.length === 0) return null;
  return (
    <section aria-labelledby="causes">
      <h2 id="causes">Causes</h2>
      <div className="table-scroll" tabIndex={0} role="group" aria-labelledby="causes">
        <table>
          <thead>
            <tr>
              <th scope="col" className="number">
                Count
              </th>
              <th scope="col">Cause</th>
              <th scope="col" className="wide">
                First
              </th>
              <th scope="col">Last</th>
            </tr>
          </thead>
          <tbody>
            {(isWhole ? causes : causes.slice(0, SHOWN)).map((group) => (
              <CauseRow key={`${group.task} ${group.fingerprint} ${group.code}`} group={group} filter={filter} />
            ))}
          </tbody>
        </table>
      </div>
      {filter.age && <p className="quiet">The counts of causes are of any age.</p>}
      {!isWhole && causes.length > SHOWN && (
        <p>
          <button type="button" className="link" onClick={() => setWhole(true)}>
            Show all {causes.length} causes
          </button>
        </p>
      )}
    </section>
  );
}

function CauseRow({ group, filter }: { group: DeadLetterGroupView; filter: DeadFilter }): ReactNode {
  return (
    <tr>
      <td className="number">{group.count.toLocaleString("en")}</td>
      <td>
        <div>
          <Link path="dead" query={{ ...filter, code: group.code, task: group.task, cause: group.fingerprint }}>
            <code>{group.code}</code> in <span className="name">{group.task}</span>
          </Link>
        </div>
        <span className="message quiet" title={group.message}>
          {group.message}
        </span>
      </td>
      <td className="wide">
        <Time at={group.first_at} />
      </td>
      <td>
        <Time at={group.last_at} />
      </td>
    </tr>
  );
}

// -- letters ------------------------------------------------------------------------------------------------------------
type Panel = { kind: "redrive" | "discard"; filter: DeadFilter; at: number } | { kind: "one"; letter: DeadLetterView };

function Letters({ filter, text }: { filter: DeadFilter; text: string }): ReactNode {
  const { every } = useLive();
  const { may, owner } = useSession();
  const canSteer = may("steer");
  const [panel, setPanel] = useState<Panel>();
  const [focused, setFocused] = useState(-1);
  const redrive = useRedrive();
  const found = useInfiniteQuery({
    queryKey: ["dead", "letters", text],
    queryFn: ({ pageParam, signal }) => client.listDeadLetters({ ...toApi(filter, now()), limit: PAGE, cursor: pageParam }, { signal }),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next,
    refetchInterval: (query) => ((query.state.data?.pages.length ?? 0) <= FOLLOWED ? every : false),
  });
  const letters = found.data?.pages.flatMap((page) => page.dead_letters) ?? [];
  // What is planned is fixed when the sheet opens: an age counts from that moment.
  const plan = (kind: "redrive" | "discard") => canSteer && letters.length > 0 && setPanel({ kind, filter, at: now() });
  const move = (step: number) => {
    const next = Math.max(0, Math.min(letters.length - 1, focused + step));
    setFocused(next);
    document.getElementById(`letter-${next}`)?.focus();
  };
  const at = letters[focused];
  useKeys({
    j: () => move(1),
    k: () => move(-1),
    r: () => canSteer && at && !redrive.isPending && redrive.mutate(at),
    d: () => canSteer && at && setPanel({ kind: "one", letter: at }),
    X: () => plan("redrive"),
  });
  const close = () => setPanel(undefined);
  return (
    <section aria-label="Dead letters">
      {!found.data ? (
        found.error ? (
          <Failure asked={[found]} />
        ) : (
          <Skeleton rows={8} />
        )
      ) : letters.length === 0 ? (
        <Nothing filter={filter} />
      ) : (
        <>
          <Failure asked={[found]} />
          <div className="list-head">
            <h2 id="letters">
              {letters.length.toLocaleString("en")}
              {found.hasNextPage && "+"} {letters.length === 1 ? "dead letter" : "dead letters"}, oldest first
            </h2>
            {canSteer && (
              <span className="buttons">
                <button type="button" className="primary" onClick={() => plan("redrive")}>
                  <Icon name="retry" /> Redrive all that match
                </button>
                <button type="button" onClick={() => plan("discard")}>
                  <Icon name="close" /> Discard all that match
                </button>
              </span>
            )}
          </div>
          {owner === null && <Owners letters={letters} filter={filter} />}
          <div className="table-scroll" tabIndex={0} role="group" aria-labelledby="letters">
            <table>
              <thead>
                <tr>
                  <th scope="col">Job</th>
                  <th scope="col">Cause</th>
                  <th scope="col" className="wide">
                    Queue
                  </th>
                  {owner === null && (
                    <th scope="col" className="wide">
                      Owner
                    </th>
                  )}
                  <th scope="col" className="number wide">
                    Attempts
                  </th>
                  <th scope="col" className="wide">
                    Failed
                  </th>
                  {canSteer && (
                    <th scope="col">
                      <span className="off-screen">Actions</span>
                    </th>
                  )}
                </tr>
              </thead>
              <tbody>
                {letters.map((letter, index) => (
                  <tr key={letter.id}>
                    <th scope="row">
                      <Link id={`letter-${index}`} path={`jobs/${letter.id}`} className="name" title={letter.id} onFocus={() => setFocused(index)}>
                        {letter.task}
                      </Link>
                      <div className="mono quiet wide">
                        {letter.id.slice(0, 8)}…{letter.id.slice(-4)}
                      </div>
                    </th>
                    <td>
                      <code>{letter.code}</code>
                      <span className="message quiet" title={letter.detail ?? letter.message}>
                        {letter.detail ?? letter.message}
                      </span>
                    </td>
                    <td className="name wide">{letter.queue}</td>
                    {owner === null && <td className="name wide">{letter.owner ?? <span className="quiet">–</span>}</td>}
                    <td className="number wide">{letter.attempts}</td>
                    <td className="wide">
                      <Time at={letter.at} />
                    </td>
                    {canSteer && (
                      <td className="actions">
                        <span className="pair">
                          <button type="button" disabled={redrive.isPending} aria-label={`Redrive job ${letter.id}`} onClick={() => redrive.mutate(letter)}>
                            <Icon name="retry" /> <span className="wide">Redrive</span>
                          </button>
                          <button type="button" aria-label={`Discard job ${letter.id}`} onClick={() => setPanel({ kind: "one", letter })}>
                            <Icon name="close" /> <span className="wide">Discard</span>
                          </button>
                        </span>
                      </td>
                    )}
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
          {found.hasNextPage && (
            <p>
              <button type="button" disabled={found.isFetchingNextPage} onClick={() => void found.fetchNextPage()}>
                Show more
              </button>
            </p>
          )}
        </>
      )}
      {panel?.kind === "one" && <DiscardSheet letter={panel.letter} onClose={close} />}
      {panel && panel.kind !== "one" && <Planner act={panel.kind} filter={panel.filter} at={panel.at} onClose={close} />}
    </section>
  );
}

/** The owners of the letters that are loaded; the API counts causes, not owners. */
function Owners({ letters, filter }: { letters: DeadLetterView[]; filter: DeadFilter }): ReactNode {
  const owners = ownersOf(letters);
  if (owners.length === 0) return null;
  return (
    <p className="owners">
      <span className="quiet">Owners of these:</span>
      {owners.slice(0, SHOWN).map(([owner, number]) => (
        <span key={owner}>
          <Link path="dead" query={{ ...filter, owner }} className="name">
            {owner}
          </Link>{" "}
          {number}
        </span>
      ))}
      {owners.length > SHOWN && <span className="quiet">and {owners.length - SHOWN} more</span>}
    </p>
  );
}

function Nothing({ filter }: { filter: DeadFilter }): ReactNode {
  if (FIELDS.some((field) => filter[field])) {
    return (
      <Empty title={`No dead letter matches ${describe(filter)}`}>
        <p>
          <Link path="dead">Show all dead letters</Link>
        </p>
      </Empty>
    );
  }
  return (
    <Empty title="There are no dead letters">
      <p>A job becomes one when its last attempt has failed, or when its error is not worth another attempt. Here you find why, and run it again.</p>
    </Empty>
  );
}

function useRedrive() {
  const say = useToast();
  const queries = useQueryClient();
  return useMutation({
    mutationFn: (letter: DeadLetterView) => client.redriveDeadLetter(letter.id),
    onSuccess: () => say("It runs again as soon as it is its turn"),
    onError: (error) => say(reasonOf(error), "failed"),
    onSettled: () => queries.invalidateQueries({ queryKey: ["dead"] }),
  });
}

function DiscardSheet({ letter, onClose }: { letter: DeadLetterView; onClose: () => void }): ReactNode {
  const queries = useQueryClient();
  const [reason, setReason] = useState("");
  const base = useId();
  const discard = useMutation({
    mutationFn: () => client.discardDeadLetter(letter.id, { reason: reason.trim() }),
    onSuccess: () => {
      onClose();
      return queries.invalidateQueries({ queryKey: ["dead"] });
    },
  });
  return (
    <Sheet title="Discard this dead letter" narrow onClose={onClose}>
      <form
        className="plan"
        onSubmit={(event) => {
          event.preventDefault();
          discard.mutate();
        }}
      >
        <p>
          The job stays failed and is no longer listed here. This cannot be undone. <code>{letter.code}</code> in <span className="name">{letter.task}</span>
        </p>
        <label htmlFor={`${base}-reason`}>Reason</label>
        <input id={`${base}-reason`} data-first required maxLength={500} value={reason} onChange={(event) => setReason(event.target.value)} />
        <Failure asked={[{ error: discard.error, dataUpdatedAt: 0 }]} />
        <footer className="sheet-foot">
          <button type="button" onClick={onClose}>
            Back
          </button>
          <button type="submit" className="primary" disabled={reason.trim() === "" || discard.isPending}>
            Discard
          </button>
        </footer>
      </form>
    </Sheet>
  );
}
