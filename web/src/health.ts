import type { DeadLetterGroupView, DependencyView, HealthView, LaneView, QueueView, WorkersStatus } from "holdfast-client";
import { clockTime, lengthOf } from "./time.ts";

export type Level = "pass" | "warn" | "fail";

/** A part of the sentence that says how things stand. `to` is where the facts behind it are. */
export interface Clause {
  level: Level;
  text: string;
  to?: { path: string; q?: string };
}

export interface Seen {
  health: HealthView;
  queues: QueueView[];
  lanes: LaneView[];
  breakers: DependencyView[];
  workers: WorkersStatus;
  groups: DeadLetterGroupView[];
  /** Whether there are more queues, or causes, than were read. */
  isCut: { queues: boolean; groups: boolean };
}

/** Checks that have a clause of their own. */
const SAID = new Set(["workers", "breakers", "pauses", "dead_letters"]);
const MOST = 4;

/** Returns what is true now, worst first; one clause that all is well if nothing is wrong. */
export function clausesOf(seen: Seen, now: number): Clause[] {
  const clauses = [...withoutWorkers(seen), ...stopped(seen, now), ...paused(seen, now), ...checks(seen.health), ...dead(seen, now)];
  return clauses.length > 0 ? clauses : [well(seen)];
}

function withoutWorkers({ health, queues, isCut }: Seen): Clause[] {
  const check = health.checks.find((one) => one.name === "workers");
  if (!check || check.status === "pass") return [];
  return [{ level: "fail", text: `No worker is running; ${count(sum(queues.map((queue) => queue.waiting)), "job waits", "jobs wait", isCut.queues)}.` }];
}

function stopped({ breakers, lanes }: Seen, now: number): Clause[] {
  return breakers
    .filter((breaker) => breaker.state !== "closed")
    .slice(0, MOST)
    .map((breaker) => {
      const behind = sum(lanes.filter((lane) => lane.dependency === breaker.dependency).map((lane) => lane.waiting));
      const since = breaker.opened_at ?? breaker.since;
      const long = since === null ? "" : ` since ${clockTime(Date.parse(since), now)} (${lengthOf(now - Date.parse(since))})`;
      const state = breaker.state === "open" ? "is down" : "is being tried again";
      return { level: "warn", text: `${breaker.dependency} ${state}${long}; ${count(behind, "job waits", "jobs wait")}, none lost.`, to: { path: "jobs", q: "state:queued" } };
    });
}

function paused({ queues }: Seen, now: number): Clause[] {
  return queues
    .filter((queue) => queue.held)
    .slice(0, MOST)
    .map((queue) => {
      const { by, at, until } = queue.held!;
      const end = until === null ? "" : `, until ${clockTime(Date.parse(until), now)}`;
      const text = `Queue ${queue.name} is paused by ${by} since ${clockTime(Date.parse(at), now)}${end}.`;
      return { level: "warn", text, to: { path: "jobs", q: `state:queued queue:${JSON.stringify(queue.name)}` } };
    });
}

function checks(health: HealthView): Clause[] {
  return health.checks
    .filter((check) => check.status !== "pass" && !SAID.has(check.name))
    .toSorted((one, other) => Number(other.status === "fail") - Number(one.status === "fail"))
    .map((check) => ({ level: check.status, text: `${capital(check.text)}.` }));
}

function dead({ groups, isCut }: Seen, now: number): Clause[] {
  if (groups.length === 0) return [];
  const newest = Math.max(...groups.map((group) => Date.parse(group.last_at)));
  const letters = count(sum(groups.map((group) => group.count)), "job has failed for good", "jobs have failed for good", isCut.groups);
  const text = `${letters}, by ${count(groups.length, "cause", "causes", isCut.groups)}, the last ${lengthOf(now - newest)} ago.`;
  return [{ level: "warn", text, to: { path: "jobs", q: "state:failed" } }];
}

function well({ workers, queues, isCut }: Seen): Clause {
  const waiting = sum(queues.map((queue) => queue.waiting));
  const text = `All is well: ${count(workers.count, "worker runs", "workers run")} ${count(workers.leases, "job", "jobs")}, ${waiting === 0 ? "none waits" : count(waiting, "waits", "wait", isCut.queues)}.`;
  return { level: "pass", text };
}

/** Returns a number with its noun. One that was only counted up to a bound has a plus. */
export function count(number: number, one: string, many: string, isCut = false): string {
  return `${number.toLocaleString("en")}${isCut ? "+" : ""} ${number === 1 ? one : many}`;
}

function sum(numbers: number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
