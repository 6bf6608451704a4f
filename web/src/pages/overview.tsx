import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import type { DeadLetterGroupView, DependencyView, JobView, LaneView, OperationView, QueueView } from "holdfast-client";
import { type ReactNode, useId } from "react";
import { client, now, reasonOf } from "../api.ts";
import { MinuteChart, Sparkline } from "../charts.tsx";
import { type Clause, type Seen, clausesOf } from "../health.ts";
import { Icon } from "../icons.tsx";
import { useLive } from "../live.tsx";
import { Coded, Empty, Failure, Link, Skeleton, State, Time, useNow, useToast } from "../parts.tsx";
import { STATES, written } from "../query.ts";
import { OperationProgress } from "../operations.tsx";
import { useSession } from "../session.tsx";
import { type Rate, LAGS, chartOf, drainsIn, rateText, ratesOf, roundUp, roundUpTime } from "../statistics.ts";
import { lengthOf, relative } from "../time.ts";

/** Statistics are of minutes, so they are asked for less often than the rest. */
const PATIENCE = 5;
const LANES = 500;
const CAUSES = 100;
const GROUPS = 8;

export function OverviewPage(): ReactNode {
  return useSession().may("look") ? <Engine /> : <OwnJobs />;
}

async function readAll(): Promise<Seen> {
  const [health, queues, lanes, breakers, workers, groups] = await Promise.all([
    client.getHealth(),
    client.listQueues({ limit: LANES }),
    client.listLanes({ limit: LANES }),
    client.listBreakers(),
    client.getWorkersStatus(),
    client.listDeadLetterGroups({ limit: CAUSES }),
  ]);
  return { health, queues: queues.queues, lanes: lanes.lanes, breakers: breakers.breakers, workers, groups: groups.groups, isCut: { queues: queues.next !== null, groups: groups.groups.length === CAUSES } };
}

/** Reads the last hour by minute: what became of jobs, how long they waited, and what each queue has completed. */
async function readStatistics() {
  const minutes = { since: "1h", step: "minute" } as const;
  const [overview, completed, retried, failed, half, most, queues] = await Promise.all([
    client.getOverview({ since: "1h" }),
    client.getSeries({ metric: "completed", ...minutes }),
    client.getSeries({ metric: "retried", ...minutes }),
    client.getSeries({ metric: "failed", ...minutes }),
    client.getSeries({ metric: "waited_p50", ...minutes }),
    client.getSeries({ metric: "waited_p95", ...minutes }),
    client.getSeries({ metric: "completed", by: "queue", ...minutes }),
  ]);
  return {
    lag: overview.lag_ms,
    throughput: chartOf([
      { label: "completed", kind: "complete", of: completed },
      { label: "retried", kind: "retry", of: retried },
      { label: "failed", kind: "failed", of: failed },
    ]),
    waited: chartOf([
      { label: "half of the jobs (p50)", kind: "half", of: half },
      { label: "95 % of the jobs (p95)", kind: "most", of: most },
    ]),
    rateOf: ratesOf(queues, now() - overview.lag_ms),
  };
}

type Read = Awaited<ReturnType<typeof readStatistics>>;

function useStatistics() {
  const { every } = useLive();
  return useQuery({ queryKey: ["statistics"], queryFn: readStatistics, refetchInterval: every && every * PATIENCE, structuralSharing: false });
}

/** What people see who may see the whole engine. */
function Engine(): ReactNode {
  const { every } = useLive();
  const current = useNow();
  const seen = useQuery({ queryKey: ["overview"], queryFn: readAll, refetchInterval: every });
  const statistics = useStatistics();
  const data = seen.data;
  if (!data) return seen.error ? <Failure asked={[seen]} /> : <Skeleton rows={8} />;
  const isNew = data.queues.length === 0 && data.groups.length === 0;
  return (
    <>
      <h1 className="off-screen">Overview</h1>
      <Sentence clauses={clausesOf(data, current)} />
      <Failure asked={[seen]} />
      <dl className="figures">
        <Figure label="Waiting" value={data.queues.reduce((sum, queue) => sum + queue.waiting, 0)} isCut={data.isCut.queues} query="state:queued" />
        <Figure label="Running" value={data.workers.leases} query="state:processing" />
        <Figure label="Workers" value={data.workers.count} />
        <Figure label="Failed for good" value={data.groups.reduce((sum, group) => sum + group.count, 0)} isCut={data.isCut.groups} query="state:failed" />
      </dl>
      {isNew ? (
        <FirstJob />
      ) : (
        <>
          <Failure asked={[statistics]} />
          <Charts read={statistics.data} isWaiting={statistics.isPending} />
          <Queues queues={data.queues} isCut={data.isCut.queues} rateOf={statistics.data?.rateOf} />
        </>
      )}
      <div className="columns">
        <Breakers breakers={data.breakers} lanes={data.lanes} />
        <Causes groups={data.groups} />
      </div>
      <Operations />
      <Checks seen={data} />
    </>
  );
}

function Charts({ read, isWaiting }: { read: Read | undefined; isWaiting: boolean }): ReactNode {
  const current = useNow();
  if (!read && !isWaiting) return null;
  if (!read)
    return (
      <div className="columns">
        <div className="chart">
          <Skeleton rows={5} />
        </div>
        <div className="chart">
          <Skeleton rows={5} />
        </div>
      </div>
    );
  return (
    <>
      {read.lag > LAGS && (
        <p className="notice notice-warn">
          <Icon name="warn" />
          <span>Statistics are {lengthOf(Math.round(read.lag / 1000) * 1000)} behind: maintenance has not counted what happened since.</span>
        </p>
      )}
      <div className="columns">
        <MinuteChart title="Jobs per minute" chart={read.throughput} stacked text={(value) => value.toLocaleString("en", { maximumFractionDigits: 1 })} roundUp={roundUp} now={current} />
        <MinuteChart title="Waiting time" chart={read.waited} text={lengthOf} roundUp={roundUpTime} now={current} />
      </div>
    </>
  );
}

function Sentence({ clauses }: { clauses: Clause[] }): ReactNode {
  const worst = clauses.some((clause) => clause.level === "fail") ? "fail" : clauses.some((clause) => clause.level === "warn") ? "warn" : "pass";
  return (
    <div className={`sentence sentence-${worst}`} aria-live="polite">
      <Icon name={worst === "pass" ? "complete" : "warn"} />
      <p>
        {clauses.map((clause, index) => (
          <span key={index} className={`clause clause-${clause.level}`}>
            {clause.to ? (
              <Link path={clause.to.path} query={{ q: clause.to.q ?? null }}>
                {clause.text}
              </Link>
            ) : (
              <Coded text={clause.text} />
            )}{" "}
          </span>
        ))}
      </p>
    </div>
  );
}

function Figure({ label, value, isCut = false, query }: { label: string; value: number; isCut?: boolean; query?: string }): ReactNode {
  const shown = `${value.toLocaleString("en")}${isCut ? "+" : ""}`;
  return (
    <div className="figure">
      <dt>{label}</dt>
      <dd>
        {query ? (
          <Link path="jobs" query={{ q: query }}>
            {shown}
          </Link>
        ) : (
          shown
        )}
      </dd>
    </div>
  );
}

function Queues({ queues, isCut, rateOf }: { queues: QueueView[]; isCut: boolean; rateOf: Read["rateOf"] | undefined }): ReactNode {
  const { may } = useSession();
  const canPause = may("operate");
  return (
    <section aria-labelledby="queues">
      <h2 id="queues">Queues</h2>
      <div className="table-scroll" tabIndex={0} role="group" aria-labelledby="queues">
        <table>
          <thead>
            <tr>
              <th scope="col">Queue</th>
              <th scope="col" className="number">
                Waiting
              </th>
              <th scope="col" className="number wide" title="Completed jobs, over the last five minutes">
                Per minute
              </th>
              <th scope="col" className="number wide" title="At this rate, if nothing is added">
                Drains in
              </th>
              <th scope="col" className="wide" title="Completed jobs of the last hour, by minute">
                Trend
              </th>
              <th scope="col" className="number wide">
                Workers
              </th>
              <th scope="col" className="wide">Tasks</th>
              <th scope="col">State</th>
              {canPause && (
                <th scope="col">
                  <span className="off-screen">Actions</span>
                </th>
              )}
            </tr>
          </thead>
          <tbody>
            {queues.map((queue) => (
              <tr key={queue.name}>
                <th scope="row" className="name">
                  <Link path="jobs" query={{ q: written({ field: "queue", value: queue.name }) }}>
                    {queue.name}
                  </Link>
                </th>
                <td className="number">{queue.waiting.toLocaleString("en")}</td>
                <Pace queue={queue} rate={rateOf?.(queue.name)} />
                <td className="number wide">{queue.workers}</td>
                <td className="name quiet wide">{queue.tasks.join(", ") || "–"}</td>
                <td>{queue.held ? <Held held={queue.held} /> : queue.workers === 0 ? <span className="tone-warn">no worker serves it</span> : "open"}</td>
                {canPause && (
                  <td className="actions">
                    <PauseButton queue={queue} />
                  </td>
                )}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {isCut && <p className="quiet">The first {LANES} queues by name are shown; <code>holdfast queues</code> lists all.</p>}
    </section>
  );
}

/** How fast a queue moves. A paused one does not, whatever it did before. */
function Pace({ queue, rate }: { queue: QueueView; rate: Rate | undefined }): ReactNode {
  const left = rate && !queue.held ? drainsIn(queue.waiting, rate.perMinute) : undefined;
  return (
    <>
      <td className="number wide">{rate ? rateText(rate.perMinute) : "–"}</td>
      <td className="number wide">{left === undefined ? "–" : lengthOf(left)}</td>
      <td className="wide">{rate && <Sparkline values={rate.values} label={`Trend of ${queue.name}: ${rateText(rate.perMinute)} per minute now`} />}</td>
    </>
  );
}

function Held({ held }: { held: NonNullable<QueueView["held"]> }): ReactNode {
  return (
    <span className="tone-warn" title={held.reason || undefined}>
      <Icon name="pause" /> paused by {held.by}
      {held.until && (
        <>
          , ends <Time at={held.until} />
        </>
      )}
    </span>
  );
}

function PauseButton({ queue }: { queue: QueueView }): ReactNode {
  const say = useToast();
  const queries = useQueryClient();
  const isHeld = queue.held !== null;
  const turn = useMutation({
    mutationFn: (): Promise<unknown> => (isHeld ? client.resumeQueue(queue.name) : client.pauseQueue(queue.name)),
    onSuccess: () => say(isHeld ? `Queue ${queue.name} runs again` : `Queue ${queue.name} is paused; running jobs finish`),
    onError: (error) => say(reasonOf(error), "failed"),
    onSettled: () => queries.invalidateQueries({ queryKey: ["overview"] }),
  });
  return (
    <button type="button" disabled={turn.isPending} aria-label={`${isHeld ? "Resume" : "Pause"} queue ${queue.name}`} onClick={() => turn.mutate()}>
      <Icon name={isHeld ? "play" : "pause"} />
      {isHeld ? "Resume" : "Pause"}
    </button>
  );
}

function Breakers({ breakers, lanes }: { breakers: DependencyView[]; lanes: LaneView[] }): ReactNode {
  const words: Record<string, string> = { closed: "closed", open: "open: calls are stopped", half_open: "half-open: tries some calls" };
  // The API lists the dependencies that were called lately, and those whose breaker is not closed.
  const idle = new Set(lanes.map((lane) => lane.dependency).filter((name) => name && !breakers.some((breaker) => breaker.dependency === name)));
  return (
    <section aria-labelledby="breakers">
      <h2 id="breakers">Dependencies</h2>
      {idle.size > 0 && (
        <p className="quiet">
          <span className="name">{[...idle].slice(0, GROUPS).join(", ")}</span>: closed, not called lately
        </p>
      )}
      {breakers.length + idle.size === 0 ? (
        <p className="quiet">
          No task names one. <code>@app.task(depends_on="gateway")</code> gives its calls a breaker.
        </p>
      ) : (
        <ul className="cards">
          {breakers.map((breaker) => (
            <li key={breaker.dependency} className={`card card-${breaker.state}`}>
              <strong className="name">{breaker.dependency}</strong>
              <span className={breaker.state === "closed" ? "tone-good" : "tone-bad"}>
                <Icon name={breaker.state === "closed" ? "complete" : "warn"} /> {words[breaker.state.replace("-", "_")] ?? breaker.state}
              </span>
              <span className="quiet">
                {breaker.failures} of {breaker.calls} calls failed · {breaker.in_flight} in flight
                {breaker.next_trial_at && (
                  <>
                    {" "}
                    · next trial <Time at={breaker.next_trial_at} />
                  </>
                )}
              </span>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

function Causes({ groups }: { groups: DeadLetterGroupView[] }): ReactNode {
  const shown = groups.toSorted((one, other) => other.count - one.count).slice(0, GROUPS);
  return (
    <section aria-labelledby="causes">
      <h2 id="causes">Why jobs failed for good</h2>
      {shown.length === 0 ? (
        <p className="quiet">No job has.</p>
      ) : (
        <ul className="cards">
          {shown.map((group) => (
            <li key={`${group.task} ${group.fingerprint}`} className="card">
              <Link path="dead" query={{ code: group.code, cause: group.fingerprint, task: group.task }}>
                <strong>{group.count.toLocaleString("en")}</strong> × <code>{group.code}</code> in <span className="name">{group.task}</span>
              </Link>
              <span className="cut" title={group.message}>
                {group.message}
              </span>
              <span className="quiet">
                first <Time at={group.first_at} />, last <Time at={group.last_at} />
              </span>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

function Operations(): ReactNode {
  const { every } = useLive();
  const asked = useQuery({ queryKey: ["operations"], queryFn: () => client.listOperations({ limit: 20 }), refetchInterval: every });
  const running = (asked.data?.operations ?? []).filter((operation: OperationView) => operation.progress === "running");
  if (running.length === 0) return null;
  return (
    <section aria-labelledby="operations">
      <h2 id="operations">Running operations</h2>
      {running.map((operation) => (
        <OperationProgress key={operation.id} operation={operation} />
      ))}
    </section>
  );
}

function Checks({ seen }: { seen: Seen }): ReactNode {
  const icons = { pass: "complete", warn: "warn", fail: "failed" } as const;
  const words = { pass: "fine", warn: "look at it", fail: "wrong" } as const;
  return (
    <section aria-labelledby="checks">
      <h2 id="checks">Checks</h2>
      <ul className="checks">
        {seen.health.checks.map((check) => (
          <li key={check.name} className={`check check-${check.status}`}>
            <Icon name={icons[check.status]} />
            <span className="off-screen">{words[check.status]}: </span>
            <span>
              <Coded text={check.text} />
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function FirstJob(): ReactNode {
  return (
    <Empty title="No job was enqueued yet">
      <pre>
        <code>{`@app.task\nasync def greet(name: str) -> str: ...\n\nawait greet.enqueue("Ada")        # or: holdfast enqueue greet name=Ada --app APP`}</code>
      </pre>
    </Empty>
  );
}

const MOST = 100;

/** What an owner sees: its own jobs, and nothing of the engine. */
function OwnJobs(): ReactNode {
  const { every } = useLive();
  const { owner } = useSession();
  const current = useNow();
  const counted = useQuery({
    queryKey: ["own counts"],
    queryFn: () => Promise.all(STATES.map(async (state) => ({ state, jobs: (await client.listJobs({ state, limit: MOST + 1 })).jobs }))),
    refetchInterval: every,
  });
  const data = counted.data;
  if (!data) return counted.error ? <Failure asked={[counted]} /> : <Skeleton rows={6} />;
  const total = data.reduce((sum, one) => sum + one.jobs.length, 0);
  const failed = data.find((one) => one.state === "failed")!.jobs;
  const active = data.filter((one) => one.state === "queued" || one.state === "processing").flatMap((one) => one.jobs);
  const clause: Clause =
    failed.length > 0
      ? { level: "warn", text: `${capped(failed.length)} of your jobs failed; the last ${relative(Date.parse(failed[0]!.finished_at ?? failed[0]!.updated_at), current)}.`, to: { path: "jobs", q: "state:failed" } }
      : { level: "pass", text: `None of your jobs has failed; ${capped(active.length)} ${active.length === 1 ? "is" : "are"} waiting or running.` };
  return (
    <>
      <h1 className="off-screen">Overview</h1>
      <Sentence clauses={[clause]} />
      <Failure asked={[counted]} />
      <dl className="figures">
        {data.map(({ state, jobs }) => (
          <div className="figure" key={state}>
            <dt>
              <State state={state} />
            </dt>
            <dd>
              <Link path="jobs" query={{ q: `state:${state}` }}>
                {capped(jobs.length)}
              </Link>
            </dd>
          </div>
        ))}
      </dl>
      {total === 0 && (
        <Empty title={`${owner} has no jobs yet`}>
          <p>They appear here as soon as one is enqueued.</p>
        </Empty>
      )}
      <div className="columns">
        <JobList title="Failed last" jobs={failed} empty="None has failed." query="state:failed" />
        <JobList title="Waiting and running" jobs={active} empty="None waits or runs." query="state:queued state:processing" />
      </div>
    </>
  );
}

const LISTED = 8;

function JobList({ title, jobs, empty, query }: { title: string; jobs: JobView[]; empty: string; query: string }): ReactNode {
  const heading = useId();
  return (
    <section aria-labelledby={heading}>
      <h2 id={heading}>{title}</h2>
      {jobs.length === 0 ? (
        <p className="quiet">{empty}</p>
      ) : (
        <ul className="cards">
          {jobs.slice(0, LISTED).map((job) => (
            <li key={job.id} className="card">
              <Link path={`jobs/${job.id}`} className="name">
                {job.task}
              </Link>
              <span className="quiet cut">
                <State state={job.state} /> {job.error_code && <code>{job.error_code}</code>} <Time at={job.finished_at ?? job.updated_at} />
              </span>
            </li>
          ))}
        </ul>
      )}
      {jobs.length > LISTED && (
        <p>
          <Link path="jobs" query={{ q: query }}>
            Show all
          </Link>
        </p>
      )}
    </section>
  );
}

function capped(length: number): string {
  return length > MOST ? `${MOST}+` : String(length);
}
