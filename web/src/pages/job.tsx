import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import type { AttemptView, EventView, JobView } from "holdfast-client";
import { Problem } from "holdfast-client";
import { type ReactNode, useId, useMemo, useState } from "react";
import { client, reasonOf } from "../api.ts";
import { Changes } from "../changes.tsx";
import { changesOf, hiddenIn } from "../diff.ts";
import { Icon } from "../icons.tsx";
import { Json, Long } from "../json.tsx";
import { useLive } from "../live.tsx";
import { Coded, CopyButton, Empty, Failure, Link, Sheet, Skeleton, State, Tabs, Time, copy, useKeys, useNow, useToast } from "../parts.tsx";
import { written } from "../query.ts";
import { ROOT, setQuery, usePlace } from "../router.ts";
import { useSession } from "../session.tsx";
import { asCommand, asCurl, asPython } from "../snippets.ts";
import { lengthOf } from "../time.ts";
import { TimelineView } from "../timeline-view.tsx";

const ENDED = ["complete", "failed", "cancelled"];
const ROWS = 200;

export function JobPage({ id }: { id: string }): ReactNode {
  const { every } = useLive();
  const job = useQuery({
    queryKey: ["job", id],
    queryFn: () => client.getJob(id, { include: "args" }),
    refetchInterval: (query) => (query.state.data && ENDED.includes(query.state.data.state) && every ? every * 5 : every),
  });
  if (job.data) return <Known job={job.data} asked={job} />;
  if (!job.error) return <Skeleton rows={10} />;
  const status = job.error instanceof Problem ? job.error.status : 0;
  if (status !== 404 && status !== 403) return <Failure asked={[job]} />;
  return (
    <Empty title={status === 404 ? "There is no such job" : "This job belongs to another owner"}>
      <p>{status === 404 ? "It was removed by retention, or its id is not whole." : "Your key shows the jobs of one owner."}</p>
      <p>
        <Link path="jobs">Show jobs</Link>
      </p>
    </Empty>
  );
}

/** Returns what belongs to the job, read again whenever it has moved. */
function useParts(job: JobView) {
  const { every } = useLive();
  const version = [job.id, job.updated_at, job.state, job.epoch, job.generation];
  const isRunning = job.state === "processing" && every;
  const why = useQuery({ queryKey: ["why", ...version], queryFn: () => client.explainJob(job.id), refetchInterval: ENDED.includes(job.state) ? false : every, placeholderData: (before) => before });
  const events = useQuery({ queryKey: ["events", ...version], queryFn: () => client.getJobEvents(job.id, { limit: ROWS }), placeholderData: (before) => before });
  const attempts = useQuery({ queryKey: ["attempts", ...version], queryFn: () => client.getJobAttempts(job.id, { limit: ROWS }), refetchInterval: isRunning, placeholderData: (before) => before });
  return { why, events, attempts };
}

function Known({ job, asked }: { job: JobView; asked: { error: unknown; dataUpdatedAt: number } }): ReactNode {
  const { why, events, attempts } = useParts(job);
  const current = useNow();
  const tried = useMemo(() => attempts.data?.attempts ?? [], [attempts.data]);
  const isCut = (attempts.data?.next ?? null) !== null;
  const last = isCut ? undefined : tried.at(-1);
  // A job may also have failed for another reason than its last attempt, such as its deadline.
  const cause = job.state === "failed" && last?.error_code === job.error_code ? causeOf(last) : undefined;
  return (
    <article className="job">
      <header className="job-head">
        <h1>
          <span className="name">{job.task}</span>
          <span className="job-id">
            <code>{job.id}</code>
            <CopyButton text={job.id} label="Copy the id" />
          </span>
        </h1>
        <Actions job={job} />
      </header>
      <div className={`sentence sentence-${job.state === "failed" ? "fail" : "plain"}`}>
        <State state={job.state} />
        <p aria-live="polite">
          {why.data ? <Coded text={capital(why.data.sentence)} /> : "…"}
          {cause && (
            <>
              {" "}
              The cause: <code>{cause}</code>
            </>
          )}
        </p>
      </div>
      <Failure asked={[asked, why, events, attempts]} />
      <Facts job={job} />
      {events.data ? <TimelineView job={job} events={events.data.events} attempts={tried} now={current} /> : <Skeleton rows={3} />}
      <Attempts attempts={tried} isCut={isCut} />
      <Details job={job} events={events.data?.events} isCut={(events.data?.next ?? null) !== null} />
    </article>
  );
}

/** Returns the first line of the technical detail, which the server shows to engineers only. */
function causeOf(attempt: AttemptView | undefined): string | undefined {
  return attempt?.error_detail?.trim().split("\n", 1)[0]!.slice(0, 300) || undefined;
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Links to the jobs that share this value. */
function shared(field: string, value: string): ReactNode {
  return (
    <Link path="jobs" query={{ q: written({ field, value }) }}>
      {value}
    </Link>
  );
}

function Facts({ job }: { job: JobView }): ReactNode {
  const facts: Array<[string, ReactNode]> = [
    ["Queue", shared("queue", job.queue)],
    ["Owner", job.owner === null ? undefined : shared("owner", job.owner)],
    ["Attempt", `${job.attempt} of ${job.max_attempts}`],
    ["Created", <Time at={job.created_at} />],
    ["Started", job.started_at && <Time at={job.started_at} />],
    ["Finished", job.finished_at && <Time at={job.finished_at} />],
    ["Deadline", job.deadline_at && <Time at={job.deadline_at} />],
    ["Worker", job.leased_by],
    ["Key", job.key === null ? undefined : shared("key", job.key)],
    ["Tags", job.tags.length > 0 && job.tags.map((tag) => <span key={tag}>{shared("tag", tag)} </span>)],
    ["Priority", job.priority !== 0 && job.priority],
    ["Retried by people", job.manual_retry_count > 0 && `${job.manual_retry_count} times`],
    ["Progress", job.progress && JSON.stringify(job.progress)],
  ];
  return (
    <dl className="facts">
      {facts
        .filter(([, value]) => value !== undefined && value !== null && value !== false && value !== "")
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}

// -- acts ---------------------------------------------------------------------------------------------------------------
function useAct(job: JobView, done: string, act: () => Promise<unknown>) {
  const say = useToast();
  const queries = useQueryClient();
  return useMutation({
    mutationFn: act,
    onSuccess: () => say(done),
    onError: (error) => say(reasonOf(error), "failed"),
    onSettled: () => queries.invalidateQueries({ queryKey: ["job", job.id] }),
  });
}

function Actions({ job }: { job: JobView }): ReactNode {
  const { may } = useSession();
  const [sheet, setSheet] = useState<"edit" | "call">();
  const retry = useAct(job, "It runs again as soon as it is its turn", () => client.retryJob(job.id));
  const cancel = useAct(job, "The job is cancelled", () => client.cancelJob(job.id));
  const canRetry = may("steer") && job.state !== "complete" && job.state !== "processing";
  const canCancel = may("steer") && !ENDED.includes(job.state);
  useKeys({
    r: () => canRetry && !retry.isPending && retry.mutate(),
    c: () => canCancel && !cancel.isPending && cancel.mutate(),
    e: () => canRetry && setSheet("edit"),
  });
  return (
    <div className="buttons">
      {canRetry && (
        <button type="button" className="primary" disabled={retry.isPending} onClick={() => retry.mutate()}>
          <Icon name="retry" /> Retry now
        </button>
      )}
      {canCancel && (
        <button type="button" disabled={cancel.isPending} onClick={() => cancel.mutate()}>
          <Icon name="cancelled" /> Cancel
        </button>
      )}
      {canRetry && (
        <button type="button" onClick={() => setSheet("edit")}>
          <Icon name="edit" /> Edit and retry
        </button>
      )}
      <button type="button" onClick={() => setSheet("call")}>
        <Icon name="copy" /> Copy as
      </button>
      {sheet === "edit" && <EditSheet job={job} onClose={() => setSheet(undefined)} />}
      {sheet === "call" && <CallSheet job={job} onClose={() => setSheet(undefined)} />}
    </div>
  );
}

interface Edited {
  args?: Record<string, unknown>;
  problem?: string;
}

function read(text: string): Edited {
  let args: unknown;
  try {
    args = JSON.parse(text);
  } catch (error) {
    return { problem: `This is not JSON yet: ${error instanceof Error ? error.message : "check it"}` };
  }
  if (typeof args !== "object" || args === null || Array.isArray(args)) return { problem: "Write an object: the arguments by name." };
  const hidden = hiddenIn(args);
  if (hidden.length > 0) return { problem: `The server hides ${hidden.slice(0, 5).join(", ")}. Write the value in place of ***, or it would be lost.` };
  return { args: args as Record<string, unknown> };
}

function EditSheet({ job, onClose }: { job: JobView; onClose: () => void }): ReactNode {
  const [text, setText] = useState(() => JSON.stringify(job.args ?? {}, null, 2));
  const { args, problem } = read(text);
  const changes = args ? changesOf(job.args ?? {}, args) : [];
  const base = useId();
  const retry = useAct(job, "It runs again with the new arguments", () => client.retryJob(job.id, { args }));
  const send = () => retry.mutate(undefined, { onSuccess: onClose });
  return (
    <Sheet title="Edit and retry" onClose={onClose}>
      <p>The job runs again with these arguments. Steps that it has recorded are forgotten.</p>
      <label htmlFor={`${base}-args`}>Arguments</label>
      <textarea id={`${base}-args`} spellCheck={false} rows={Math.min(16, text.split("\n").length + 1)} value={text} aria-invalid={problem !== undefined} aria-describedby={`${base}-said`} onChange={(event) => setText(event.target.value)} />
      <div id={`${base}-said`} aria-live="polite">
        {problem ? (
          <p className="tone-bad">{problem}</p>
        ) : changes.length === 0 ? (
          <p className="quiet">Nothing is changed yet.</p>
        ) : (
          <Changes changes={changes} caption="What changes" />
        )}
      </div>
      <footer className="sheet-foot">
        <button type="button" onClick={onClose}>
          Back
        </button>
        <button type="button" className="primary" disabled={problem !== undefined || changes.length === 0 || retry.isPending} onClick={send}>
          Retry with {changes.length === 1 ? "1 change" : `${changes.length} changes`}
        </button>
      </footer>
    </Sheet>
  );
}

function CallSheet({ job, onClose }: { job: JobView; onClose: () => void }): ReactNode {
  const say = useToast();
  const call = { task: job.task, args: (job.args ?? {}) as Record<string, unknown>, queue: job.queue, owner: job.owner, priority: job.priority };
  const ways = [
    { name: "curl", text: asCurl(call, ROOT.href.replace(/\/$/, "")) },
    { name: "Command line", text: asCommand(call) },
    { name: "Python", text: asPython(call) },
  ];
  const hidden = hiddenIn(call.args);
  return (
    <Sheet title="Call it again from elsewhere" onClose={onClose}>
      {hidden.length > 0 && <p className="tone-bad">The server hides {hidden.slice(0, 5).join(", ")}: replace *** before you use this.</p>}
      {ways.map((way) => (
        <section key={way.name} aria-label={way.name}>
          <div className="json-head">
            <h3>{way.name}</h3>
            <button type="button" onClick={() => void copy(way.text).then((done) => say(done ? "Copied" : "Select the text and copy it", done ? "done" : "failed"))}>
              <Icon name="copy" /> Copy
            </button>
          </div>
          <Long text={way.text} />
        </section>
      ))}
    </Sheet>
  );
}

// -- attempts -----------------------------------------------------------------------------------------------------------
const OUTCOMES: Record<string, string> = { retry: "failed" };

function Attempts({ attempts, isCut }: { attempts: AttemptView[]; isCut: boolean }): ReactNode {
  const { query } = usePlace();
  const open = query.get("attempt") ?? String(attempts.findLast((attempt) => attempt.error_code)?.epoch ?? "");
  if (attempts.length === 0) return null;
  return (
    <section aria-labelledby="attempts">
      <h2 id="attempts">Attempts</h2>
      <ol className="attempts">
        {attempts.toReversed().map((attempt) => (
          <li key={attempt.epoch}>
            <details open={open === String(attempt.epoch)}>
              <summary onClick={(event) => (event.preventDefault(), setQuery({ attempt: open === String(attempt.epoch) ? "none" : String(attempt.epoch) }))}>
                <Icon name="chevron" />
                <span className="number">{attempt.attempt}</span>
                <State state={attempt.ended_at === null ? "processing" : (OUTCOMES[attempt.outcome ?? ""] ?? attempt.outcome ?? "failed")} />
                {attempt.error_code && <code>{attempt.error_code}</code>}
                <span className="cut">{causeOf(attempt) ?? attempt.error_message}</span>
                <span className="quiet attempt-when">
                  {attempt.duration_ms !== null && `${lengthOf(attempt.duration_ms)} · `}
                  <Time at={attempt.started_at} />
                </span>
              </summary>
              <AttemptDetails attempt={attempt} />
            </details>
          </li>
        ))}
      </ol>
      {isCut && <p className="quiet">Only the first {ROWS} attempts are shown.</p>}
    </section>
  );
}

function AttemptDetails({ attempt }: { attempt: AttemptView }): ReactNode {
  return (
    <div className="attempt-details">
      <p className="quiet">
        {attempt.worker ? `worker ${attempt.worker}` : "no worker"} · lease {attempt.epoch}
        {attempt.gateway_status !== null && ` · answer of the service ${attempt.gateway_status}`}
        {attempt.fingerprint && (
          <>
            {" "}
            · cause <code>{attempt.fingerprint.slice(0, 12)}</code>
          </>
        )}
      </p>
      {attempt.error_detail && <Long text={attempt.error_detail} />}
      {attempt.traceback && (
        <>
          <h3>Traceback</h3>
          <Long text={attempt.traceback} />
        </>
      )}
      {attempt.logs.length > 0 && (
        <>
          <h3>Last lines of the log</h3>
          <Long text={attempt.logs.join("\n")} />
        </>
      )}
      {!attempt.error_detail && !attempt.traceback && attempt.logs.length === 0 && <p className="quiet">Nothing more was recorded.</p>}
    </div>
  );
}

// -- details ------------------------------------------------------------------------------------------------------------
function Details({ job, events, isCut }: { job: JobView; events: EventView[] | undefined; isCut: boolean }): ReactNode {
  const { query } = usePlace();
  const tabs = [
    { id: "arguments", label: "Arguments" },
    { id: "result", label: "Result" },
    { id: "events", label: events ? `Events ${events.length}${isCut ? "+" : ""}` : "Events" },
  ];
  const chosen = tabs.some((tab) => tab.id === query.get("tab")) ? query.get("tab")! : "arguments";
  return (
    <section aria-label="Details">
      <Tabs tabs={tabs} chosen={chosen} onChoose={(tab) => setQuery({ tab: tab === "arguments" ? null : tab })}>
        {chosen === "arguments" && <Json value={job.args ?? {}} label="the arguments" />}
        {chosen === "result" && <Result job={job} />}
        {chosen === "events" && <Events events={events ?? []} isCut={isCut} />}
      </Tabs>
    </section>
  );
}

function Result({ job }: { job: JobView }): ReactNode {
  const isComplete = job.state === "complete";
  const asked = useQuery({ queryKey: ["result", job.id, job.generation], queryFn: () => client.getJobResult(job.id), enabled: isComplete && job.artifact !== null, staleTime: Infinity });
  if (!isComplete) return <p className="quiet">{job.state === "failed" || job.state === "cancelled" ? "It ended without a result." : "It has not ended yet."}</p>;
  if (job.artifact === null) return <Json value={job.result} label="the result" />;
  if (asked.data) return <Json value={asked.data.result} label="the result" />;
  return asked.error ? <Failure asked={[asked]} /> : <Skeleton rows={3} />;
}

function Events({ events, isCut }: { events: EventView[]; isCut: boolean }): ReactNode {
  return (
    <div className="table-scroll" role="group" aria-label="Events" tabIndex={0}>
      <table>
        <thead>
          <tr>
            <th scope="col">When</th>
            <th scope="col">Event</th>
            <th scope="col" className="number">
              Attempt
            </th>
            <th scope="col">Details</th>
          </tr>
        </thead>
        <tbody>
          {events.map((event) => (
            <tr key={event.id}>
              <td>
                <Time at={event.at} clock />
              </td>
              <td>{event.kind.replaceAll("_", " ")}</td>
              <td className="number">{event.attempt || ""}</td>
              <td className="letters mono">{metaOf(event)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {isCut && <p className="quiet">Only the first {ROWS} events are shown.</p>}
    </div>
  );
}

function metaOf(event: EventView): string {
  return Object.entries(event.meta)
    .filter(([, value]) => value !== null && value !== "")
    .map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join("  ")
    .slice(0, 1000);
}
