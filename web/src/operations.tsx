import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import type { JobView, OperationFilter, OperationView, State as JobState } from "holdfast-client";
import { type ReactNode, useId, useState } from "react";
import { client, reasonOf } from "./api.ts";
import { aboutOf, skippedWords, standing } from "./dead.ts";
import { count } from "./health.ts";
import { Icon } from "./icons.tsx";
import { useLive } from "./live.tsx";
import { Failure, Link, Sheet, Skeleton, State, useNow, useToast } from "./parts.tsx";

export type Act = "retry" | "cancel";

interface Meaning {
  title: string;
  done: string;
  /** The states that the act is meant for, where the filter names none. */
  meant: JobState[];
  /** Why jobs of other states are left as they are. */
  skipped: Partial<Record<JobState, string>>;
  effect: string;
}

const MEANINGS: Record<Act, Meaning> = {
  retry: {
    title: "Retry",
    done: "retried",
    meant: ["failed"],
    skipped: { cancelled: "a person has cancelled them; add state:cancelled to the query to retry them", queued: "they wait already", processing: "they are running", complete: "they are done" },
    effect: "Each gets its attempts anew and waits for its turn.",
  },
  cancel: {
    title: "Cancel",
    done: "cancelled",
    meant: ["queued", "processing"],
    skipped: { failed: "they have ended", cancelled: "they have ended", complete: "they are done" },
    effect: "Running ones are asked to stop. A cancelled job can be retried.",
  },
};
const COUNTED: Record<Act, JobState[]> = { retry: ["failed", "cancelled", "queued", "processing"], cancel: ["queued", "processing"] };

interface Preview {
  acts: Array<{ state: JobState; matched: number }>;
  skips: Array<{ state: JobState; matched: number; why: string }>;
  sample: JobView[];
}

/** Asks how many jobs of each state match, without changing any. */
async function preview(act: Act, filter: OperationFilter, list: () => Promise<JobView[]>): Promise<Preview> {
  const meaning = MEANINGS[act];
  const wanted = filter.state ?? meaning.meant;
  const possible = COUNTED[act].filter((state) => filter.state === undefined || filter.state === null || filter.state.includes(state));
  const countOf = async (state: JobState) => {
    const answer = await client.beginOperation({ action: act, filter: { ...filter, state: [state] }, dry_run: true });
    return { state, matched: answer.matched };
  };
  const [counted, sample] = await Promise.all([Promise.all(possible.map(countOf)), list()]);
  const acts = counted.filter((one) => wanted.includes(one.state) && one.matched > 0);
  const skips = counted.filter((one) => !wanted.includes(one.state) && one.matched > 0).map((one) => ({ ...one, why: meaning.skipped[one.state] ?? "" }));
  return { acts, skips, sample: sample.filter((job) => wanted.includes(job.state as JobState)).slice(0, 5) };
}

interface BulkProps {
  act: Act;
  /** What the user has chosen, in words. */
  chosen: string;
  filter: OperationFilter;
  list: () => Promise<JobView[]>;
  onClose: () => void;
  onBegun: () => void;
}

/** Shows what an act on many jobs will change before it is done, and how it goes after. */
export function BulkSheet({ act, chosen, filter, list, onClose, onBegun }: BulkProps): ReactNode {
  const meaning = MEANINGS[act];
  const [rate, setRate] = useState("");
  const [reason, setReason] = useState("");
  const [begun, setBegun] = useState<OperationView>();
  const fields = useId();
  const shown = useQuery({ queryKey: ["preview", act, filter], queryFn: () => preview(act, filter, list), staleTime: 0, gcTime: 0 });
  const begin = useMutation({
    mutationFn: async () => {
      const states = shown.data!.acts.map((one) => one.state);
      const body = { action: act, filter: { ...filter, state: states }, rate: rate === "" ? null : Number(rate), reason };
      return (await client.beginOperation(body)) as OperationView;
    },
    onSuccess: (operation) => {
      setBegun(operation);
      onBegun();
    },
  });
  const total = shown.data?.acts.reduce((sum, one) => sum + one.matched, 0) ?? 0;
  return (
    <Sheet title={`${meaning.title} ${chosen}`} onClose={onClose}>
      {begun ? (
        <>
          <OperationProgress operation={begun} isOpen />
          <p className="quiet">You may close this; the operation goes on, and the overview shows it.</p>
          <footer className="sheet-foot">
            <button type="button" className="primary" onClick={onClose}>
              Close
            </button>
          </footer>
        </>
      ) : shown.data ? (
        <>
          <p className="lead">{total === 0 ? "No job that matches can be changed by this." : `${count(total, "job", "jobs")} will be ${meaning.done}. ${meaning.effect}`}</p>
          <table className="counts">
            <caption className="off-screen">What will happen</caption>
            <tbody>
              {shown.data.acts.map((one) => (
                <tr key={one.state}>
                  <td className="number">{one.matched.toLocaleString("en")}</td>
                  <td>
                    <State state={one.state} />
                  </td>
                  <td>will be {meaning.done}</td>
                </tr>
              ))}
              {shown.data.skips.map((one) => (
                <tr key={one.state} className="quiet">
                  <td className="number">{one.matched.toLocaleString("en")}</td>
                  <td>
                    <State state={one.state} />
                  </td>
                  <td>stay as they are: {one.why}</td>
                </tr>
              ))}
            </tbody>
          </table>
          {shown.data.sample.length > 0 && (
            <>
              <h3>For example</h3>
              <ul className="sample">
                {shown.data.sample.map((job) => (
                  <li key={job.id}>
                    <span className="name">{job.task}</span> <code>{job.id}</code> {job.error_code && <code>{job.error_code}</code>}
                  </li>
                ))}
              </ul>
            </>
          )}
          <div className="fields">
            <label htmlFor={`${fields}-rate`}>At most this many a second</label>
            <input id={`${fields}-rate`} type="number" min="0.01" step="any" placeholder="as fast as it goes" value={rate} onChange={(event) => setRate(event.target.value)} />
            <label htmlFor={`${fields}-reason`}>Reason</label>
            <input id={`${fields}-reason`} maxLength={500} placeholder="recorded with each job" value={reason} onChange={(event) => setReason(event.target.value)} />
          </div>
          <Failure asked={[{ error: begin.error, dataUpdatedAt: 0 }]} />
          <footer className="sheet-foot">
            <button type="button" onClick={onClose}>
              Back
            </button>
            <button type="button" className="primary" disabled={total === 0 || begin.isPending} onClick={() => begin.mutate()}>
              {meaning.title} {count(total, "job", "jobs")}
            </button>
          </footer>
        </>
      ) : shown.error ? (
        <Failure asked={[shown]} />
      ) : (
        <Skeleton rows={4} />
      )}
    </Sheet>
  );
}

const WORDS: Record<string, string> = { retry: "Retry", cancel: "Cancel", redrive: "Redrive", discard: "Discard", replay: "Replay" };

/** How an operation goes. It can be stopped; what is done stays done. */
export function OperationProgress({ operation, isOpen = false }: { operation: OperationView; isOpen?: boolean }): ReactNode {
  const say = useToast();
  const queries = useQueryClient();
  const { isLive } = useLive();
  const asked = useQuery({
    queryKey: ["operation", operation.id],
    queryFn: () => client.getOperation(operation.id),
    initialData: operation,
    refetchInterval: (query) => ((isLive || isOpen) && query.state.data?.progress === "running" ? 1000 : false),
  });
  const stop = useMutation({
    mutationFn: () => client.cancelOperation(operation.id),
    onSuccess: () => queries.invalidateQueries({ queryKey: ["operation", operation.id] }),
    onError: (error) => say(reasonOf(error), "failed"),
  });
  const seen = asked.data;
  const current = useNow();
  const dealt = seen.done + seen.refused;
  const skipped = skippedWords(seen.skipped);
  const states: Record<string, string> = {
    running: "running",
    done: "done",
    stopped: `stopped: ${seen.error ?? "too many failed again"}`,
    cancelled: "stopped; what is done stays done",
    failed: `failed: ${seen.error ?? "see the log"}`,
  };
  return (
    <div className="operation" data-progress={seen.progress} data-phase={seen.phase ?? undefined}>
      <p aria-live={isOpen ? "polite" : undefined}>
        <strong>{WORDS[seen.action] ?? seen.action}</strong>: {dealt.toLocaleString("en")} of {seen.matched.toLocaleString("en")} · {states[seen.progress]}
        {seen.ended > 0 && ` · ${seen.failed_again} of ${seen.ended} that ended failed again`}
        {skipped.length > 0 && ` · skipped: ${skipped.join(", ")}`}
      </p>
      {seen.progress === "running" && (seen.phase || seen.rate !== null) && <p>{standing(seen, current)}</p>}
      <progress max={Math.max(seen.matched, 1)} value={seen.progress === "running" ? dealt : Math.max(seen.matched, 1)} aria-label={`${WORDS[seen.action] ?? seen.action} operation`} />
      <p className="quiet">
        <span className="name">{aboutOf(seen)}</span> · by {seen.by}
        {seen.options.reason ? `: ${String(seen.options.reason)}` : ""}{" "}
        {seen.progress === "running" && (
          <button type="button" disabled={stop.isPending} onClick={() => stop.mutate()}>
            <Icon name="cancelled" /> Stop
          </button>
        )}
        {seen.progress !== "running" && isOpen && seen.action !== "discard" && (
          <Link path="jobs" query={{ q: seen.action === "cancel" ? "state:cancelled" : null }}>
            Show jobs
          </Link>
        )}
      </p>
    </div>
  );
}
