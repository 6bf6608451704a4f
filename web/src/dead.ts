import type { DeadLetterGroupView, OperationFilter, OperationRequest, OperationView } from "holdfast-client";
import { count } from "./health.ts";
import { lengthOf, spanOf } from "./time.ts";

/** Which dead letters, as the address has it. */
export interface DeadFilter {
  code?: string;
  /** The fingerprint of a cause. */
  cause?: string;
  task?: string;
  queue?: string;
  owner?: string;
  /** Since it failed for good: `>1h` or `<30m`. */
  age?: string;
}
export const FIELDS = ["code", "cause", "task", "queue", "owner", "age"] as const;

export function readFilter(query: URLSearchParams): { filter: DeadFilter; problem?: string } {
  const filter: DeadFilter = {};
  for (const field of FIELDS) {
    const value = query.get(field)?.trim();
    if (value) filter[field] = value;
  }
  const { age } = filter;
  const isAge = age === undefined || (/^[<>]/.test(age) && spanOf(age.slice(1)) !== undefined);
  return isAge ? { filter } : { filter, problem: `Age "${age}" cannot be read: write >1h for older ones, or <30m for newer ones.` };
}

/** Returns the filter as the API takes it, to list dead letters and to act on them. */
export function toApi(filter: DeadFilter, now: number): Pick<OperationFilter, "fingerprint" | "owner" | "died_after" | "died_before"> & { code?: string[]; task?: string[]; queue?: string[] } {
  const { age } = filter;
  const bound = age === undefined ? {} : { [age.startsWith(">") ? "died_before" : "died_after"]: new Date(now - spanOf(age.slice(1))!).toISOString() };
  const many = { code: filter.code, task: filter.task, queue: filter.queue };
  const given = Object.entries(many).filter(([, value]) => value !== undefined);
  return {
    ...Object.fromEntries(given.map(([name, value]) => [name, [value!]])),
    ...(filter.cause && { fingerprint: filter.cause }),
    ...(filter.owner && { owner: filter.owner }),
    ...bound,
  };
}

/** Returns the filter in words, such as "code NETWORK, task convert". */
export function describe(filter: DeadFilter): string {
  const words = FIELDS.filter((field) => filter[field]).map((field) => `${field} ${field === "cause" ? filter[field]!.slice(0, 12) : filter[field]}`);
  return words.length === 0 ? "all dead letters" : words.join(", ");
}

/** Returns the causes that may have dead letters of this cause and age. The API selects by the other fields. */
export function causesOf(groups: DeadLetterGroupView[], filter: DeadFilter, now: number): DeadLetterGroupView[] {
  const { died_after: after, died_before: before } = toApi(filter, now);
  return groups
    .filter((group) => !filter.cause || group.fingerprint === filter.cause)
    .filter((group) => (!after || Date.parse(group.last_at) >= Date.parse(after)) && (!before || Date.parse(group.first_at) < Date.parse(before)))
    .toSorted((one, other) => other.count - one.count || Date.parse(other.last_at) - Date.parse(one.last_at));
}

export function totalOf(groups: DeadLetterGroupView[]): number {
  return groups.reduce((sum, group) => sum + group.count, 0);
}

/** Returns what is true now, in a sentence. */
export function sentenceOf(groups: DeadLetterGroupView[], now: number, { isCut, isFiltered }: { isCut: boolean; isFiltered: boolean }): string {
  const first = groups[0];
  if (!first) return isFiltered ? "No dead letter matches." : "No job has failed for good.";
  const newest = Math.max(...groups.map((group) => Date.parse(group.last_at)));
  const most = groups.length > 1 ? ` Most are ${first.code} in ${first.task}: ${first.count.toLocaleString("en")}.` : "";
  const letters = count(totalOf(groups), "job has failed for good", "jobs have failed for good", isCut);
  return `${letters}, by ${count(groups.length, "cause", "causes", isCut)}, the last ${lengthOf(now - newest)} ago.${most}`;
}

/** Returns how many of these dead letters each owner has, the most first. */
export function ownersOf(letters: Array<{ owner: string | null }>): Array<[string, number]> {
  const counts = new Map<string, number>();
  for (const { owner } of letters) if (owner !== null) counts.set(owner, (counts.get(owner) ?? 0) + 1);
  return [...counts].toSorted(([, one], [, other]) => other - one);
}

// -- the planner ----------------------------------------------------------------------------------------------------------
/** What is written in the planner. Rates are a minute, the share in percent. */
export interface Plan {
  canary: string;
  rampFrom: string;
  rate: string;
  stopAbove: string;
  queue: string;
  patch: string;
  reason: string;
}
export const BLANK: Plan = { canary: "", rampFrom: "", rate: "", stopAbove: "", queue: "", patch: "", reason: "" };
/** With these a mistake costs five jobs. */
export const CAREFUL: Plan = { ...BLANK, canary: "5", rampFrom: "10", rate: "200", stopAbove: "20" };

type Options = Pick<OperationRequest, "canary" | "ramp_from" | "rate" | "stop_above" | "to_queue" | "patch" | "reason">;
export type Problems = Partial<Record<keyof Plan, string>>;

/** Returns the options of a plan as the API takes them, and what is wrong with each field. */
export function readPlan(plan: Plan, hasTask: boolean): { options: Options; problems: Problems } {
  const problems: Problems = {};
  const numberOf = (field: keyof Plan, most: number, text: string, isWhole = false): number | undefined => {
    const written = plan[field].trim();
    if (written === "") return undefined;
    const value = Number(written);
    if (!(value >= (field === "stopAbove" ? 0 : isWhole ? 1 : 0.06) && value <= most) || (isWhole && !Number.isInteger(value))) problems[field] = text;
    return value;
  };
  const canary = numberOf("canary", 500, "a whole number from 1 to 500", true);
  const rate = numberOf("rate", 6_000_000, "a number of at least 0.06");
  const rampFrom = numberOf("rampFrom", 6_000_000, "a number of at least 0.06");
  const stopAbove = numberOf("stopAbove", 100, "a number from 0 to 100");
  if (rampFrom !== undefined && rate === undefined) problems.rate = "say where the ramp ends";
  else if (rampFrom !== undefined && rampFrom > rate!) problems.rampFrom = "a ramp begins below its end";
  const patch = patchOf(plan.patch, hasTask);
  if (typeof patch === "string") problems.patch = patch;
  const options = {
    canary,
    rate: rate === undefined ? undefined : rate / 60,
    ramp_from: rampFrom === undefined ? undefined : rampFrom / 60,
    stop_above: stopAbove === undefined ? undefined : stopAbove / 100,
    to_queue: plan.queue.trim() || undefined,
    patch: typeof patch === "string" ? undefined : patch,
    reason: plan.reason.trim() || undefined,
  };
  return { options: JSON.parse(JSON.stringify(options)) as Options, problems };
}

/** Returns the patch, or what is wrong with it. */
function patchOf(text: string, hasTask: boolean): Record<string, unknown> | string | undefined {
  if (text.trim() === "") return undefined;
  let patch: unknown;
  try {
    patch = JSON.parse(text);
  } catch (error) {
    return `this is not JSON yet: ${error instanceof Error ? error.message : "check it"}`;
  }
  if (typeof patch !== "object" || patch === null || Array.isArray(patch)) return 'write an object, such as {"mapping": "jats"}; null removes an argument';
  if (Object.keys(patch).length === 0) return "it changes nothing; name an argument";
  if (!hasTask) return "filter by a task first: the patch is checked against its arguments";
  return patch as Record<string, unknown>;
}

const REASONS: Record<string, string> = {
  changed: "had changed meanwhile",
  processing: "are running",
  due: "are queued already",
  duplicate: "have the dedupe key of another job",
  arguments: "have arguments that do not fit the task",
  forbidden: "are not allowed by the check of the task",
  refused: "were refused by a hook or an extension",
};

/** Returns why jobs are skipped, each reason with its number. */
export function skippedWords(skipped: Record<string, number>): string[] {
  return Object.entries(skipped).map(([reason, jobs]) => `${jobs.toLocaleString("en")} ${REASONS[reason] ?? `were refused: ${reason}`}`);
}

/** Returns a rate in jobs a second as people say it. */
export function perMinute(rate: number): string {
  return `${(rate * 60).toLocaleString("en", { maximumSignificantDigits: 3 })} a minute`;
}

/** Returns where a running operation stands, and what happens next. */
export function standing(operation: OperationView, now: number): string {
  const { options, phase, current_rate: rate, next_at: next } = operation;
  const soon = next === null || Date.parse(next) <= now ? "" : `, the next in ${lengthOf(Date.parse(next) - now)}`;
  if (phase === "canary") return `Canary: ${operation.ended} of ${options.canary} have ended; the others wait for these.`;
  if (phase === "watching") return `All were moved; ${count(operation.done - operation.ended, "has", "have")} not ended.`;
  if (phase === "ramp") return `Ramp: ${perMinute(rate ?? Number(options.ramp_from))}${soon}; the rate doubles each minute up to ${perMinute(operation.rate ?? 0)}.`;
  return rate === null ? "As fast as it goes." : `At the full rate, ${perMinute(rate)}${soon}.`;
}

/** Returns which jobs an operation is for and what it changes, in words. */
export function aboutOf({ filter, options }: OperationView): string {
  const words = Object.entries(filter).map(([name, value]) => (name === "ids" ? count((value as string[]).length, "chosen job", "chosen jobs") : `${name} ${Array.isArray(value) ? value.join(" or ") : typeof value === "object" ? JSON.stringify(value) : String(value)}`));
  if (options.to_queue) words.push(`to queue ${String(options.to_queue)}`);
  if (options.patch) words.push(`changes ${Object.keys(options.patch).join(", ")}`);
  return words.length === 0 ? "all" : words.join(", ");
}
