import { BadAnswer } from "./errors.js";

/** Longer than any event that the server makes. */
const LONGEST = 64 * 1024 * 1024;

/** Server-sent events, from text to events. What was cut off in the middle has not been told, and comes again. */
export class Reader {
  #rest = "";
  #id;
  #kind = "";
  #data = [];

  constructor(last) {
    /** The number to come back with: of the last event that was complete. */
    this.last = last;
    /** How long the server wants to be left alone before that. */
    this.retrySeconds = 2;
  }

  /** Of a new connection: what the last one left unfinished is void. */
  begin() {
    this.#rest = "";
    this.#clear();
  }

  /** The events that are complete with this piece. */
  feed(text) {
    this.#rest += text;
    if (this.#rest.length > LONGEST) {
      throw new BadAnswer("an event of the stream does not end; check the URL");
    }
    const lines = this.#rest.split("\n");
    this.#rest = lines.pop();
    return lines.map((line) => this.#take(line.replace(/\r$/, ""))).filter((event) => event !== undefined);
  }

  #take(line) {
    if (line === "") {
      return this.#dispatch();
    }
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "id") {
      this.#id = value;
    } else if (name === "event") {
      this.#kind = value;
    } else if (name === "data") {
      this.#data.push(value);
    } else if (name === "retry" && /^\d+$/.test(value)) {
      this.retrySeconds = Math.min(Number(value) / 1000, 60);
    }
    return undefined;
  }

  #dispatch() {
    const kind = this.#kind;
    const data = this.#data.join("\n");
    this.last = this.#id ?? this.last;
    this.#clear();
    if (data === "") {
      return undefined; // a sign of life; its number says how far all of this has come
    }
    const id = this.last ?? "0";
    if (kind !== "") {
      return { id, kind, at: null, job_id: null, task: null, queue: null, owner: null, attempt: 0, epoch: 0, meta: {} };
    }
    try {
      const told = JSON.parse(data);
      const { event, ...facts } = told.data;
      return { id, kind: event, at: told.time, ...facts };
    } catch (error) {
      throw new BadAnswer("the stream holds something else than events; check the URL", { cause: error });
    }
  }

  #clear() {
    this.#id = undefined;
    this.#kind = "";
    this.#data = [];
  }
}
