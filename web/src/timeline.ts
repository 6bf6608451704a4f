import type { AttemptView, EventView, JobView } from "holdfast-client";

export type Kind = "waiting" | "backoff" | "running" | "complete" | "failed" | "retry" | "stopped";

export interface Segment {
  from: number;
  to: number;
  kind: Kind;
  /** Said in full, for the tooltip and for those who do not see the picture. */
  text: string;
}

export interface Row {
  label: string;
  segments: Segment[];
}

export interface Mark {
  at: number;
  label: string;
}

export interface Timeline {
  from: number;
  to: number;
  rows: Row[];
  marks: Mark[];
}

const ENDS = new Set(["complete", "failed", "cancelled"]);
/** Events that put a job back into its queue, and what it waits for then. */
const WAITS: Record<string, [Kind, string]> = {
  queued: ["waiting", "waits for its turn"],
  retry: ["backoff", "waits before the next attempt"],
  snoozed: ["backoff", "was put off by its handler"],
  released: ["waiting", "was given back by its worker"],
  reclaimed: ["waiting", "was taken from a lost worker"],
  manual_retry: ["waiting", "a person runs it again"],
  redriven: ["waiting", "was redriven"],
};
const OUTCOMES: Record<string, Kind> = { complete: "complete", failed: "failed", retry: "retry" };

function time(text: string | null): number | undefined {
  return text === null ? undefined : Date.parse(text);
}

/** Returns the life of a job as rows of segments. Attempts come from their rows, waits from the events between them. */
export function timelineOf(job: JobView, events: EventView[], attempts: AttemptView[], now: number): Timeline {
  const from = Date.parse(job.created_at);
  const isEnded = ENDS.has(job.state);
  const end = isEnded ? (time(job.finished_at) ?? time(job.updated_at) ?? now) : now;
  const expected = job.state === "queued" ? Date.parse(job.run_at) : undefined;
  const rows: Row[] = [];

  const waits: Segment[] = [];
  const moves = events.filter((event) => event.kind in WAITS || event.kind === "processing" || ENDS.has(event.kind) || event.kind === "timed_out");
  for (const [index, event] of moves.entries()) {
    const wait = WAITS[event.kind];
    if (!wait) continue;
    const begin = Date.parse(event.at);
    const next = moves[index + 1];
    const until = next ? Date.parse(next.at) : isEnded ? begin : Math.max(now, expected ?? now);
    waits.push({ from: begin, to: Math.max(begin, until), kind: wait[0], text: wait[1] });
  }
  if (waits.length > 0) rows.push({ label: "waiting", segments: waits });

  for (const attempt of attempts) {
    const begin = Date.parse(attempt.started_at);
    const until = time(attempt.ended_at) ?? now;
    const kind = attempt.ended_at === null ? "running" : (OUTCOMES[attempt.outcome ?? ""] ?? "stopped");
    const code = attempt.error_code ? ` with ${attempt.error_code}` : "";
    const text = attempt.ended_at === null ? "is running" : `ended as ${attempt.outcome ?? "unknown"}${code}`;
    rows.push({ label: `attempt ${attempt.attempt}`, segments: [{ from: begin, to: Math.max(begin, until), kind, text }] });
  }
  const deadline = time(job.deadline_at);
  const marks: Mark[] = [];
  if (deadline !== undefined) marks.push({ at: deadline, label: "deadline" });
  if (expected !== undefined && expected > now) marks.push({ at: expected, label: "next attempt" });
  const last = Math.max(end, from + 1, ...rows.flatMap((row) => row.segments.map((segment) => segment.to)));
  // A deadline next week must not squeeze everything else into a corner.
  const shown = marks.filter((mark) => mark.at <= from + (last - from) * 4 && mark.at >= from);
  return { from, to: Math.max(last, ...shown.map((mark) => mark.at)), rows, marks: shown };
}

/** Shorter than this, an axis counts from the begin: the time of day would say the same at every tick. */
export const SHORT = 10_000;

/** Returns round moments for an axis with at most *most* of them; of a short one, round times since it began. */
export function ticks(from: number, to: number, most: number): number[] {
  const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 216e5, 432e5, 864e5];
  let step = steps.find((size) => (to - from) / size <= most) ?? 864e5;
  while ((to - from) / step > most) step *= 2;
  const found: number[] = [];
  for (let at = to - from < SHORT ? from : Math.ceil(from / step) * step; at <= to; at += step) found.push(at);
  return found;
}
