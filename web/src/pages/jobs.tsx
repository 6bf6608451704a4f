import { useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import type { JobView, OperationFilter } from "holdfast-client";
import { type KeyboardEvent, type ReactNode, useEffect, useId, useMemo, useRef, useState, useSyncExternalStore } from "react";
import { flushSync } from "react-dom";
import { client, now } from "../api.ts";
import { Icon } from "../icons.tsx";
import { useLive } from "../live.tsx";
import { type Act, BulkSheet } from "../operations.tsx";
import { Empty, Failure, Link, Skeleton, State, Time, useKeys } from "../parts.tsx";
import { STATES, type Term, complete, completed, jobIdIn, readQuery, toFilter, toListQuery, withTerm, withoutField } from "../query.ts";
import { navigate, setQuery, urlOf, usePlace } from "../router.ts";
import { useSession } from "../session.tsx";

const PAGE = 100;
/** On a phone a row has two lines. */
const NARROW = matchMedia("(max-width: 800px)");
/** Beyond this many pages, what is loaded stands still: to read them all every two seconds would load the server. */
const FOLLOWED = 2;

export function JobsPage(): ReactNode {
  const { query } = usePlace();
  const text = query.get("q") ?? "";
  const { terms, problems } = useMemo(() => readQuery(text), [text]);
  return (
    <>
      <h1>Jobs</h1>
      <QueryBar key={`bar ${text}`} text={text} problems={problems} />
      <Chips text={text} terms={terms} />
      {problems.length === 0 && <Found key={`found ${text}`} text={text} terms={terms} />}
    </>
  );
}

function go(text: string) {
  const id = jobIdIn(text);
  if (id) navigate(urlOf(`jobs/${id}`));
  else setQuery({ q: text.trim() || null }, { replace: false });
}

function QueryBar({ text, problems }: { text: string; problems: string[] }): ReactNode {
  const [written, setWritten] = useState(text);
  const [cursor, setCursor] = useState<number>();
  const [chosen, setChosen] = useState(-1);
  const input = useRef<HTMLInputElement>(null);
  const base = useId();
  const known = useKnown();
  const options = cursor === undefined ? [] : complete(written, cursor, known);
  useKeys({ "/": () => input.current?.focus() });
  const take = (word: string) => {
    const next = completed(written, cursor ?? written.length, word);
    // Drawn at once: the next key comes before the next frame, and would be written where the cursor was.
    flushSync(() => {
      setWritten(next.text);
      setCursor(next.cursor);
      setChosen(-1);
    });
    input.current?.focus();
    input.current?.setSelectionRange(next.cursor, next.cursor);
  };
  const press = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && options.length > 0) {
      event.preventDefault();
      setChosen((before) => (before + step + options.length) % options.length);
    } else if ((event.key === "Enter" || event.key === "Tab") && options[chosen]) {
      event.preventDefault();
      take(options[chosen].word);
    } else if (event.key === "Escape") {
      setCursor(undefined);
      setChosen(-1);
    }
  };
  return (
    <form
      className="query"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        setCursor(undefined);
        go(written);
      }}
    >
      <div className="query-field">
        <Icon name="search" />
        <input
          ref={input}
          role="combobox"
          aria-label="Query"
          aria-expanded={options.length > 0}
          aria-controls={`${base}-options`}
          aria-activedescendant={chosen >= 0 ? `${base}-${chosen}` : undefined}
          aria-invalid={problems.length > 0}
          aria-describedby={problems.length > 0 ? `${base}-problem` : undefined}
          autoComplete="off"
          spellCheck={false}
          placeholder="state:failed queue:convert owner:acme error:NETWORK arg.order:1001 age:>1h, or an id"
          value={written}
          onChange={(event) => {
            setWritten(event.target.value);
            setCursor(event.target.selectionStart ?? event.target.value.length);
            setChosen(-1);
          }}
          onFocus={(event) => setCursor(event.target.selectionStart ?? 0)}
          onBlur={() => setCursor(undefined)}
          onKeyDown={press}
        />
        {written && (
          <button type="button" className="plain" aria-label="Clear" onClick={() => (setWritten(""), go(""))}>
            <Icon name="close" />
          </button>
        )}
        <button type="submit">Search</button>
      </div>
      <ul id={`${base}-options`} role="listbox" aria-label="Completions" className="options completions" hidden={options.length === 0}>
        {options.map((option, index) => (
          <li key={option.word} id={`${base}-${index}`} role="option" aria-selected={index === chosen} onMouseDown={(event) => (event.preventDefault(), take(option.word))}>
            <code>{option.word}</code> <span className="quiet">{option.help}</span>
          </li>
        ))}
      </ul>
      {problems.length > 0 && (
        <p id={`${base}-problem`} className="notice notice-failed" role="alert">
          <Icon name="warn" />
          <span>{problems.join(". ")}.</span>
        </p>
      )}
    </form>
  );
}

/** Returns the names of queues and tasks, for completion. */
function useKnown(): Record<string, string[]> {
  const { may } = useSession();
  const asked = useQuery({ queryKey: ["names"], queryFn: () => client.listQueues({ limit: 500 }), enabled: may("look"), staleTime: 60_000 });
  const queues = asked.data?.queues ?? [];
  return { queue: queues.map((queue) => queue.name), task: [...new Set(queues.flatMap((queue) => queue.tasks))].toSorted() };
}

function Chips({ text, terms }: { text: string; terms: Term[] }): ReactNode {
  const states = terms.filter((term) => term.field === "state").map((term) => term.value);
  return (
    <nav className="chips" aria-label="State">
      <Link path="jobs" query={{ q: withoutField(text, "state") || null }} aria-current={states.length === 0 ? "true" : undefined}>
        all
      </Link>
      {STATES.map((state) => (
        <Link key={state} path="jobs" query={{ q: withTerm(text, { field: "state", value: state }, { only: true }) }} aria-current={states.length === 1 && states[0] === state ? "true" : undefined}>
          <State state={state} />
        </Link>
      ))}
    </nav>
  );
}

interface Chosen {
  act: Act;
  words: string;
  filter: OperationFilter;
  list: () => Promise<JobView[]>;
}

function Found({ text, terms }: { text: string; terms: Term[] }): ReactNode {
  const { every } = useLive();
  const queries = useQueryClient();
  const session = useSession();
  const canSteer = session.may("steer");
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const [focused, setFocused] = useState(-1);
  const [sheet, setSheet] = useState<Chosen>();
  const scroller = useRef<HTMLDivElement>(null);
  const found = useInfiniteQuery({
    queryKey: ["jobs", text],
    queryFn: ({ pageParam, signal }) => client.listJobs({ ...toListQuery(terms, now()), limit: PAGE, cursor: pageParam }, { signal }),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next,
    refetchInterval: (query) => ((query.state.data?.pages.length ?? 0) <= FOLLOWED ? every : false),
  });
  const jobs = useMemo(() => found.data?.pages.flatMap((page) => page.jobs) ?? [], [found.data]);
  const isNarrow = useNarrow();
  const rows = useVirtualizer({ count: jobs.length, getScrollElement: () => scroller.current, estimateSize: () => (isNarrow ? 58 : 32), overscan: 12 });
  useEffect(() => rows.measure(), [rows, isNarrow]);
  const shown = rows.getVirtualItems();
  const last = shown.at(-1)?.index ?? 0;
  const { hasNextPage, isFetchingNextPage, fetchNextPage } = found;
  useEffect(() => {
    if (hasNextPage && !isFetchingNextPage && last >= jobs.length - 20 && jobs.length > 0) void fetchNextPage();
  }, [hasNextPage, isFetchingNextPage, fetchNextPage, last, jobs.length]);

  const move = (step: number) => {
    const next = Math.max(0, Math.min(jobs.length - 1, focused + step));
    setFocused(next);
    rows.scrollToIndex(next);
    requestAnimationFrame(() => document.getElementById(`row-${next}`)?.focus());
  };
  const select = (id: string | undefined) => {
    if (!id || !canSteer) return;
    const next = new Set(selected);
    if (!next.delete(id)) next.add(id);
    setSelected(next);
  };
  // What is acted on is fixed when the sheet opens: jobs arrive and the selection ends while it is open.
  const actOnSelected = (act: Act) => {
    const ids = [...selected];
    const chosen = jobs.filter((job) => selected.has(job.id));
    if (ids.length > 0) setSheet({ act, words: `${ids.length} selected`, filter: { ids }, list: () => Promise.resolve(chosen) });
  };
  const actOnAll = (act: Act) => {
    const at = now();
    const list = async () => (await client.listJobs({ ...toListQuery(terms, at), limit: 50 })).jobs;
    if (canSteer) setSheet({ act, words: text ? `all that match ${text}` : "all jobs", filter: toFilter(terms, at), list });
  };
  useKeys({
    j: () => move(1),
    k: () => move(-1),
    x: () => select(jobs[focused]?.id),
    r: () => actOnSelected("retry"),
    c: () => actOnSelected("cancel"),
    X: () => actOnAll("retry"),
  });

  if (!found.data) return found.error ? <Failure asked={[found]} /> : <Skeleton rows={12} />;
  if (jobs.length === 0) return <Nothing text={text} />;
  const isWhole = !hasNextPage;
  return (
    <>
      <Failure asked={[found]} />
      <div className="list-head">
        <span>
          {selected.size > 0 ? `${selected.size} selected` : `${jobs.length.toLocaleString("en")}${isWhole ? "" : "+"} ${jobs.length === 1 ? "job" : "jobs"}, newest first`}
          {(found.data.pages.length ?? 0) > FOLLOWED && (
            <>
              {" "}
              ·{" "}
              <button type="button" className="link" onClick={() => void queries.resetQueries({ queryKey: ["jobs", text] })}>
                back to the newest
              </button>
            </>
          )}
        </span>
        {canSteer && (
          <span className="buttons">
            {selected.size > 0 ? (
              <>
                <button type="button" onClick={() => actOnSelected("retry")}>
                  <Icon name="retry" /> Retry
                </button>
                <button type="button" onClick={() => actOnSelected("cancel")}>
                  <Icon name="cancelled" /> Cancel
                </button>
                <button type="button" className="plain" onClick={() => setSelected(new Set())}>
                  Select none
                </button>
              </>
            ) : (
              <>
                <button type="button" onClick={() => actOnAll("retry")}>
                  <Icon name="retry" /> Retry all that match
                </button>
                <button type="button" onClick={() => actOnAll("cancel")}>
                  <Icon name="cancelled" /> Cancel all that match
                </button>
              </>
            )}
          </span>
        )}
      </div>
      <div className="grid" role="table" aria-label="Jobs" aria-rowcount={isWhole ? jobs.length + 1 : -1}>
        <div role="rowgroup">
          <div className="grid-row grid-head" role="row" aria-rowindex={1}>
            {canSteer && (
              <span role="columnheader" className="cell-select">
                <input type="checkbox" aria-label="Select all that are loaded" checked={selected.size > 0 && selected.size >= jobs.length} onChange={(event) => setSelected(event.target.checked ? new Set(jobs.slice(0, 500).map((job) => job.id)) : new Set())} />
              </span>
            )}
            <span role="columnheader">State</span>
            <span role="columnheader">Task</span>
            <span role="columnheader">Id</span>
            <span role="columnheader">Queue</span>
            <span role="columnheader">Owner</span>
            <span role="columnheader" className="number">
              Attempt
            </span>
            <span role="columnheader">Created</span>
            <span role="columnheader">Next or last</span>
          </div>
        </div>
        <div ref={scroller} className="grid-scroll" role="rowgroup" tabIndex={0} aria-label="Rows">
          <div className="grid-space" style={{ height: rows.getTotalSize() }}>
            {shown.map((item) => (
              <JobRow key={jobs[item.index]!.id} job={jobs[item.index]!} index={item.index} start={item.start} isSelected={selected.has(jobs[item.index]!.id)} onSelect={canSteer ? select : undefined} onFocus={setFocused} />
            ))}
          </div>
        </div>
      </div>
      {isFetchingNextPage && <p className="quiet">Loading more…</p>}
      {sheet && (
        <BulkSheet
          act={sheet.act}
          chosen={sheet.words}
          filter={sheet.filter}
          list={sheet.list}
          onClose={() => setSheet(undefined)}
          onBegun={() => setSelected(new Set())}
        />
      )}
    </>
  );
}

function useNarrow(): boolean {
  return useSyncExternalStore(
    (changed) => {
      NARROW.addEventListener("change", changed);
      return () => NARROW.removeEventListener("change", changed);
    },
    () => NARROW.matches,
  );
}

interface RowProps {
  job: JobView;
  index: number;
  start: number;
  isSelected: boolean;
  onSelect: ((id: string) => void) | undefined;
  onFocus: (index: number) => void;
}

function JobRow({ job, index, start, isSelected, onSelect, onFocus }: RowProps): ReactNode {
  return (
    <div className="grid-row" role="row" aria-rowindex={index + 2} data-selected={isSelected || undefined} style={{ transform: `translateY(${start}px)` }}>
      {onSelect && (
        <span role="cell" className="cell-select">
          <input type="checkbox" aria-label={`Select job ${job.id}`} checked={isSelected} onChange={() => onSelect(job.id)} />
        </span>
      )}
      <span role="cell">
        <State state={job.state} />
      </span>
      <span role="cell" className="cut">
        <Link id={`row-${index}`} path={`jobs/${job.id}`} className="name" onFocus={() => onFocus(index)} title={job.task}>
          {job.task}
        </Link>
      </span>
      <span role="cell" className="cut mono quiet wide" title={job.id}>
        {job.id.slice(0, 8)}…{job.id.slice(-4)}
      </span>
      <span role="cell" className="cut wide" title={job.queue}>
        {job.queue}
      </span>
      <span role="cell" className="cut wide" title={job.owner ?? undefined}>
        {job.owner ?? <span className="quiet">–</span>}
      </span>
      <span role="cell" className="number wide">
        {job.attempt}/{job.max_attempts}
      </span>
      <span role="cell" className="cut cell-created">
        <Time at={job.created_at} />
      </span>
      <span role="cell" className="cut cell-next">
        <Next job={job} />
      </span>
    </div>
  );
}

/** The next thing that will happen to a job, or how it ended. */
function Next({ job }: { job: JobView }): ReactNode {
  if (job.state === "queued") {
    const why = job.error_code ? `, because ${job.error_code}` : "";
    return Date.parse(job.run_at) > now() ? (
      <>
        attempt {job.attempt + 1} <Time at={job.run_at} />
        {why}
      </>
    ) : (
      <>waits for its turn{why}</>
    );
  }
  if (job.state === "processing") {
    return (
      <>
        since <Time at={job.last_attempt_at} />
      </>
    );
  }
  const end = (
    <>
      ended <Time at={job.finished_at ?? job.updated_at} />
    </>
  );
  return job.error_code ? (
    <span title={job.error_message ?? undefined}>
      {end} with <code>{job.error_code}</code>
    </span>
  ) : (
    end
  );
}

function Nothing({ text }: { text: string }): ReactNode {
  if (text) {
    return (
      <Empty title="No job matches">
        <p>
          <Link path="jobs">Show all jobs</Link>
        </p>
      </Empty>
    );
  }
  return (
    <Empty title="No job was enqueued yet">
      <pre>
        <code>{`@app.task\nasync def greet(name: str) -> str: ...\n\nawait greet.enqueue("Ada")        # or: holdfast enqueue greet name=Ada --app APP`}</code>
      </pre>
    </Empty>
  );
}
