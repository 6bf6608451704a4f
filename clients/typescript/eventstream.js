import { BadAnswer } from "./errors.js";

/** Longer than any event of the server. */
const LONGEST = 64 * 1024 * 1024;

/** Parses server-sent events. An event that is cut off is not returned, and the server sends it again. */
export class Reader {
  #rest = "";
  #id;
  #kind = "";
  #data = [];

  constructor(last) {
    /** The id of the last complete event, with which the stream is resumed. */
    this.last = last;
    /** How long the server asks to wait before that. */
    this.retrySeconds = 2;
  }

  /** Starts a new connection, and drops an incomplete event of the last one. */
  begin() {
    this.#rest = "";
    this.#clear();
  }

  /** Returns the events that this piece of text completes. */
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
      return undefined; // a comment that keeps the connection open; its id is the current position
    }
    const id = this.last ?? "0";
    if (kind !== "") {
      return { id, kind, at: null, job_id: null, task: null, queue: null, owner: null, attempt: 0, epoch: 0, meta: {} };
    }
    try {
      const envelope = JSON.parse(data);
      const { event, ...facts } = envelope.data;
      return { id, kind: event, at: envelope.time, ...facts };
    } catch (error) {
      throw new BadAnswer("the stream does not contain events; check the URL", { cause: error });
    }
  }

  #clear() {
    this.#id = undefined;
    this.#kind = "";
    this.#data = [];
  }
}
