import type { ListJobsQuery, OperationFilter, State } from "holdfast-client";
import { spanOf } from "./time.ts";

/** The words of the query bar: `state:failed queue:convert arg.order:1001 age:>1h`. */
export interface Term {
  field: string;
  value: string;
}

export interface Query {
  terms: Term[];
  /** What cannot be understood, in one line each, with what to do. */
  problems: string[];
}

export const STATES: State[] = ["queued", "processing", "complete", "failed", "cancelled"];
/** Each field: whether it may stand more than once, and what it selects. */
export const FIELDS: Record<string, { many: boolean; help: string }> = {
  state: { many: true, help: "queued, processing, complete, failed or cancelled" },
  task: { many: true, help: "the name of a task" },
  queue: { many: true, help: "the name of a queue" },
  owner: { many: false, help: "whose jobs" },
  error: { many: false, help: "an error code, such as NETWORK" },
  tag: { many: false, help: "a tag" },
  key: { many: false, help: "jobs that run one at a time" },
  age: { many: false, help: "since it was created: >1h or <30m" },
  internal: { many: false, help: "yes: with the engine's own jobs" },
};
const JOB_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** Returns the id of a job, if the text is one. */
export function jobIdIn(text: string): string | undefined {
  const id = text.trim().toLowerCase();
  return JOB_ID.test(id) ? id : undefined;
}

/** Splits a text into words; quotes keep spaces together: `owner:"acme inc"`. */
function wordsOf(text: string): string[] {
  return (text.match(/(?:[^\s"]|"(?:\\.|[^"\\])*"?)+/g) ?? []).slice(0, 60);
}

function unquoted(text: string): string {
  const inner = /^"((?:\\.|[^"\\])*)"?$/.exec(text);
  return inner ? inner[1]!.replace(/\\(.)/g, "$1") : text;
}

/** Returns a term as it is written in the query bar. */
export function written({ field, value }: Term): string {
  return `${field}:${/[\s"]/.test(value) || value === "" ? `"${value.replace(/["\\]/g, "\\$&")}"` : value}`;
}

export function readQuery(text: string): Query {
  const terms: Term[] = [];
  const problems: string[] = [];
  for (const word of wordsOf(text)) {
    const colon = word.indexOf(":");
    const field = word.slice(0, Math.max(colon, 0));
    const value = unquoted(word.slice(colon + 1));
    const problem = colon < 1 ? `"${word}" has no field: write task:${word}, or the whole id of a job` : problemOf(field, value);
    if (problem) problems.push(problem);
    else if (!isMany(field) && terms.some((term) => term.field === field)) problems.push(`${field} is given twice; keep one`);
    else terms.push({ field, value });
  }
  return { terms, problems };
}

function isMany(field: string): boolean {
  return field.startsWith("arg.") || (FIELDS[field]?.many ?? false);
}

function problemOf(field: string, value: string): string | undefined {
  if (field.startsWith("arg.") && field.length > 4) return undefined;
  if (!(field in FIELDS)) return `no field "${field}"; there are: ${Object.keys(FIELDS).join(", ")}, arg.NAME`;
  if (value === "") return `${field} has no value: ${FIELDS[field]!.help}`;
  if (field === "state" && !STATES.includes(value as State)) return `no state "${value}"; there are: ${STATES.join(", ")}`;
  if (field === "age" && (!/^[<>]/.test(value) || spanOf(value.slice(1)) === undefined)) return `age is ${FIELDS.age!.help}`;
  if (field === "internal" && value !== "yes") return `internal is "yes", or leave it out`;
  return undefined;
}

function all(terms: Term[], field: string): string[] | undefined {
  const values = terms.filter((term) => term.field === field).map((term) => term.value);
  return values.length > 0 ? values : undefined;
}

function one(terms: Term[], field: string): string | undefined {
  return all(terms, field)?.[0];
}

function bounds(terms: Term[], now: number): { created_after?: string; created_before?: string } {
  const age = one(terms, "age");
  if (age === undefined) return {};
  const moment = new Date(now - spanOf(age.slice(1))!).toISOString();
  return age.startsWith(">") ? { created_before: moment } : { created_after: moment };
}

/** Returns the terms as the API takes them to list jobs. */
export function toListQuery(terms: Term[], now: number): ListJobsQuery {
  return {
    state: all(terms, "state") as State[] | undefined,
    task: all(terms, "task"),
    queue: all(terms, "queue"),
    owner: one(terms, "owner"),
    error_code: one(terms, "error"),
    tag: one(terms, "tag"),
    key: one(terms, "key"),
    internal: one(terms, "internal") ? true : undefined,
    arg: terms.filter((term) => term.field.startsWith("arg.")).map((term) => `${term.field.slice(4)}=${term.value}`),
    ...bounds(terms, now),
  };
}

/** Returns the terms as the API takes them to act on all jobs that match. */
export function toFilter(terms: Term[], now: number): OperationFilter {
  const query: OperationFilter & { arg?: unknown } = toListQuery(terms, now) as OperationFilter;
  delete query.arg;
  const args = terms.filter((term) => term.field.startsWith("arg.")).map((term) => [term.field.slice(4), jsonOrText(term.value)]);
  const filter = { ...query, args: args.length > 0 ? Object.fromEntries(args) : undefined };
  return JSON.parse(JSON.stringify(filter)) as OperationFilter;
}

/** Reads a value as the API does: as JSON, or else as text. */
function jsonOrText(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** Returns the text with *term* added, or with its field replaced where that may stand once. */
export function withTerm(text: string, term: Term, { only = false } = {}): string {
  const kept = readQuery(text).terms.filter((other) => other.field !== term.field || (!only && isMany(term.field) && other.value !== term.value));
  return [...kept, term].map(written).join(" ");
}

export function withoutField(text: string, field: string): string {
  return readQuery(text)
    .terms.filter((term) => term.field !== field)
    .map(written)
    .join(" ");
}

export interface Completion {
  /** The word that replaces the one at the cursor. */
  word: string;
  help: string;
}

/** Returns what the word at *cursor* may become. *known* are values by field. */
export function complete(text: string, cursor: number, known: Record<string, string[]>): Completion[] {
  const word = /\S*$/.exec(text.slice(0, cursor))![0];
  const colon = word.indexOf(":");
  if (colon < 0) {
    const fields = [...Object.keys(FIELDS), "arg."].filter((field) => field.startsWith(word.toLowerCase()));
    return fields.map((field) => ({
      word: field === "arg." ? field : `${field}:`,
      help: FIELDS[field]?.help ?? "the value of an argument: arg.order:1001",
    }));
  }
  const field = word.slice(0, colon);
  const begun = word.slice(colon + 1).replace(/^"/, "").toLowerCase();
  const values = field === "state" ? STATES : (known[field] ?? []);
  return values
    .filter((value) => value.toLowerCase().includes(begun) && value.toLowerCase() !== begun)
    .slice(0, 8)
    .map((value) => ({ word: `${written({ field, value })} `, help: "" }));
}

/** Returns the text after a completion was chosen, and where the cursor is then. */
export function completed(text: string, cursor: number, word: string): { text: string; cursor: number } {
  const begin = cursor - /\S*$/.exec(text.slice(0, cursor))![0].length;
  const rest = text.slice(cursor).replace(/^\S*\s?/, "");
  return { text: text.slice(0, begin) + word + rest, cursor: begin + word.length };
}
