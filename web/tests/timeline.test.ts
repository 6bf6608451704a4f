import type { AttemptView, EventView, JobView } from "holdfast-client";
import { expect, test } from "vitest";
import { ticks, timelineOf } from "../src/timeline.ts";

const at = (seconds: number) => new Date(1_800_000_000_000 + seconds * 1000).toISOString();
const NOW = Date.parse(at(60));

function job(given: Partial<JobView>): JobView {
  return { state: "queued", created_at: at(0), run_at: at(0), updated_at: at(0), finished_at: null, deadline_at: null, ...given } as JobView;
}
const event = (kind: string, seconds: number) => ({ kind, at: at(seconds) }) as EventView;
const attempt = (number: number, begin: number, end: number | null, outcome: string | null, error_code: string | null = null) =>
  ({ attempt: number, started_at: at(begin), ended_at: end === null ? null : at(end), outcome, error_code }) as AttemptView;
const spans = (rows: ReturnType<typeof timelineOf>["rows"]) =>
  rows.map((row) => [row.label, ...row.segments.map((one) => [one.kind, one.from / 1000 - 1_800_000_000, one.to / 1000 - 1_800_000_000])]);

test("a retry shows its wait, its attempt, its backoff and the next attempt", () => {
  const events = [event("queued", 0), event("processing", 2), event("retry", 12)];
  const made = timelineOf(job({ run_at: at(90) }), events, [attempt(1, 2, 12, "retry", "GW_TIMEOUT")], NOW);
  expect(spans(made.rows)).toEqual([
    ["waiting", ["waiting", 0, 2], ["backoff", 12, 90]],
    ["attempt 1", ["retry", 2, 12]],
  ]);
  expect(made.rows[1]!.segments[0]!.text).toBe("ended as retry with GW_TIMEOUT");
  expect(made.marks.map((mark) => mark.label)).toEqual(["next attempt"]);
  expect(made.to).toBe(Date.parse(at(90)));
});

test("a running attempt reaches to now, a finished job ends where it ended", () => {
  const running = timelineOf(job({ state: "processing" }), [event("queued", 0), event("processing", 5)], [attempt(1, 5, null, null)], NOW);
  expect(spans(running.rows)).toEqual([["waiting", ["waiting", 0, 5]], ["attempt 1", ["running", 5, 60]]]);
  const done = timelineOf(job({ state: "complete", finished_at: at(9) }), [event("queued", 0), event("processing", 5), event("complete", 9)], [attempt(1, 5, 9, "complete")], NOW);
  expect(spans(done.rows)[1]).toEqual(["attempt 1", ["complete", 5, 9]]);
  expect(done.to).toBe(Date.parse(at(9)));
});

test("a distant deadline does not squeeze the rest", () => {
  const far = timelineOf(job({ deadline_at: at(100_000) }), [event("queued", 0)], [], NOW);
  expect(far.marks).toEqual([]);
  expect(far.to).toBe(NOW);
  const near = timelineOf(job({ deadline_at: at(80) }), [event("queued", 0)], [], NOW);
  expect(near.marks.map((mark) => mark.label)).toEqual(["deadline"]);
});

test("a clock that is behind makes no negative lengths", () => {
  const made = timelineOf(job({ state: "processing" }), [event("queued", 100)], [attempt(1, 120, null, null)], NOW);
  for (const row of made.rows) for (const one of row.segments) expect(one.to).toBeGreaterThanOrEqual(one.from);
});

test("an axis has round moments, and few of them", () => {
  expect(ticks(0, 60_000, 5)).toEqual([0, 15_000, 30_000, 45_000, 60_000]);
  for (const length of [1, 37, 5_000, 864e5 * 400]) expect(ticks(7, 7 + length, 6).length).toBeLessThanOrEqual(7);
});
