import { BadAnswer, ClientError, Problem, Unreachable, mediaOf, refusal } from "./errors.js";
import { Reader } from "./eventstream.js";
import { Operations } from "./operations.js";

export { BadAnswer, ClientError, Operations, Problem, Unreachable };

const PREFIX = "/api/v1";
const ENDED = new Set(["complete", "failed", "cancelled"]);
/** A quiet stream sends a comment every 15 s, so one that is silent for this long is dead. */
const SILENT_SECONDS = 45;
/** Errors of connections that were never made, so nothing has reached the server. */
const UNSENT = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT"]);
const PATIENCE = { tries: 5, baseSeconds: 0.2, streamTries: 10, longestSeconds: 30 };

export class Client extends Operations {
  #url;
  #key;
  #timeout;
  #patience;
  #fetch;
  #sleep;

  constructor(url, options = {}) {
    super();
    this.#url = baseOf(url);
    this.#key = options.key;
    this.#timeout = options.timeoutSeconds ?? 10;
    this.#patience = { ...PATIENCE, ...options.patience };
    this.#fetch = options.fetch ?? ((...given) => globalThis.fetch(...given));
    this.#sleep = options.sleep ?? sleep;
  }

  get url() {
    return this.#url;
  }

  // -- any call ---------------------------------------------------------------------------------------------------
  async send(call, options = {}) {
    const request = this.#request(call);
    if (call.takesKey) {
      request.headers["Idempotency-Key"] ??= crypto.randomUUID();
    }
    for (let attempt = 1; ; attempt += 1) {
      let error;
      try {
        return await this.#once(call, request, options.signal);
      } catch (caught) {
        error = caught;
      }
      const isRepeatable = call.method === "GET" || call.takesKey === true;
      const pause = this.#pause(attempt, this.#patience.tries, error, isRepeatable);
      if (pause === undefined) {
        throw error;
      }
      await this.#sleep(pause, options.signal);
    }
  }

  async #once(call, { url, ...request }, signal) {
    const timeout = AbortSignal.timeout(this.#timeout * 1000);
    const either = signal ? AbortSignal.any([signal, timeout]) : timeout;
    let response;
    let text;
    try {
      response = await this.#fetch(url, { ...request, signal: either });
      const kind = call.answers[response.status];
      const media = mediaOf(response);
      if (kind === undefined || media === "application/problem+json" || (kind === "json" && media !== "application/json")) {
        throw await refusal(response);
      }
      text = await response.text();
      if (kind !== "json") {
        return kind === "none" ? undefined : text;
      }
    } catch (error) {
      throw this.#translated(error, signal);
    }
    try {
      return JSON.parse(text);
    } catch (error) {
      throw new BadAnswer("the answer is not JSON; check the URL", { cause: error });
    }
  }

  #request(call) {
    const headers = { Accept: "application/json" };
    if (this.#key !== undefined) {
      headers.Authorization = `Bearer ${this.#key}`;
    }
    for (const [name, value] of Object.entries(call.headers ?? {})) {
      if (value !== undefined) {
        headers[name] = value;
      }
    }
    const request = { method: call.method, url: this.#url + call.path + queryOf(call.query), headers, redirect: "manual" };
    if (call.body !== undefined) {
      headers["Content-Type"] = "application/json";
      request.body = JSON.stringify(call.body);
    }
    return request;
  }

  /** Returns an error of `fetch` as one of ours; the caller's own abort stays as it is. */
  #translated(error, signal) {
    if (error instanceof ClientError || signal?.aborted) {
      return error;
    }
    const unreachable = new Unreachable(`no answer from ${this.#url}; check that it runs and can be reached`, { cause: error });
    unreachable.wasSent = !UNSENT.has(error?.cause?.code);
    return unreachable;
  }

  /**
   * Returns how many seconds to wait before the request is sent again; undefined if it is not. After 429, or when no connection
   * could be made, nothing was done. After 503 or a broken connection this is unknown, so only reads and requests with an
   * Idempotency-Key are sent again, also while the first one is still being carried out.
   */
  #pause(attempt, tries, error, isRepeatable) {
    const isInFlight = error.code === "IDEMPOTENCY_KEY_IN_FLIGHT";
    const isBusy = error instanceof Problem && (error.status === 429 || error.status === 503 || isInFlight);
    if (attempt >= tries || !(isBusy || error instanceof Unreachable)) {
      return undefined;
    }
    const isUndone = error.status === 429 || error.wasSent === false;
    if (!isUndone && !isRepeatable) {
      return undefined;
    }
    const { baseSeconds, longestSeconds } = this.#patience;
    if (error.retryAfter !== undefined) {
      return error.retryAfter > longestSeconds ? undefined : error.retryAfter + Math.random() * baseSeconds;
    }
    return Math.min(baseSeconds * 2 ** Math.min(attempt - 1, 30), longestSeconds) * (0.5 + Math.random() / 2);
  }

  // -- verbs --------------------------------------------------------------------------------------------------------
  enqueue(task, args = {}, { idempotencyKey, signal, ...options } = {}) {
    return this.enqueueJob({ task, args, ...options }, { idempotencyKey, signal });
  }

  async *jobs(query = {}, options = {}) {
    for (let cursor = query.cursor; ; ) {
      const page = await this.listJobs({ ...query, cursor }, options);
      yield* page.jobs;
      if (page.next === null) {
        return;
      }
      cursor = page.next;
    }
  }

  async *deadLetters(query = {}, options = {}) {
    for (let cursor = query.cursor; ; ) {
      const page = await this.listDeadLetters({ ...query, cursor }, options);
      yield* page.dead_letters;
      if (page.next === null) {
        return;
      }
      cursor = page.next;
    }
  }

  async wait(jobId, { timeoutSeconds = Infinity, signal } = {}) {
    const end = performance.now() + timeoutSeconds * 1000;
    for (let pause = 0.05; ; pause = Math.min(pause * 1.5, 2)) {
      const job = await this.getJob(jobId, {}, { signal });
      if (ENDED.has(job.state)) {
        return job;
      }
      const left = (end - performance.now()) / 1000;
      if (left <= 0) {
        throw new ClientError(`the job ${jobId} is still ${job.state} after ${timeoutSeconds} s`);
      }
      await this.#sleep(Math.min(pause, left), signal);
    }
  }

  async result(jobId, options = {}) {
    await this.wait(jobId, options);
    return (await this.getJobResult(jobId, { signal: options.signal })).result;
  }

  // -- events -------------------------------------------------------------------------------------------------------
  async *events({ after, kind, owner, jobId, signal } = {}) {
    const path = jobId === undefined ? "/events/stream" : `/jobs/${encodeURIComponent(jobId)}/events/stream`;
    const reader = new Reader(after);
    for (let failures = 1; ; failures += 1) {
      const request = this.#request({ method: "GET", path: PREFIX + path, query: { kind, owner } });
      let pause = reader.retrySeconds;
      try {
        for await (const text of this.#listen(request, reader, signal)) {
          failures = 0;
          yield* reader.feed(text);
        }
      } catch (caught) {
        const error = this.#translated(caught, signal);
        const tries = reader.last === undefined ? this.#patience.tries : this.#patience.streamTries;
        const least = this.#pause(failures, tries, error, true);
        if (least === undefined) {
          throw error;
        }
        pause = Math.max(pause, least);
      }
      await this.#sleep(pause, signal);
    }
  }

  /** Yields the text of one connection, until it ends or is silent for too long. */
  async *#listen({ url, ...request }, reader, signal) {
    reader.begin();
    request.headers.Accept = "text/event-stream";
    if (reader.last !== undefined) {
      request.headers["Last-Event-ID"] = reader.last;
    }
    const silence = new AbortController();
    const either = signal ? AbortSignal.any([signal, silence.signal]) : silence.signal;
    let timer = setTimeout(() => silence.abort(), this.#timeout * 1000);
    try {
      const response = await this.#fetch(url, { ...request, signal: either });
      if (response.status !== 200 || mediaOf(response) !== "text/event-stream") {
        throw await refusal(response);
      }
      const decoder = new TextDecoder();
      const chunks = response.body.getReader(); // not every browser can iterate over it
      for (let next = await chunks.read(); !next.done; next = await chunks.read()) {
        clearTimeout(timer);
        timer = setTimeout(() => silence.abort(), SILENT_SECONDS * 1000);
        yield decoder.decode(next.value, { stream: true });
      }
    } finally {
      clearTimeout(timer);
      silence.abort(); // closes the connection when the caller stops reading
    }
  }
}

function baseOf(url) {
  const parts = new URL(url);
  if (!/^https?:$/.test(parts.protocol) || parts.search || parts.hash) {
    throw new TypeError('the URL of an API is written "https://jobs.example.com", with a path where it is mounted');
  }
  if (parts.username || parts.password) {
    throw new TypeError("a URL must not hold a secret; give the key as { key }");
  }
  const path = parts.pathname.replace(/\/+$/, "");
  return parts.origin + (path.endsWith(PREFIX) ? path.slice(0, -PREFIX.length) : path);
}

function queryOf(query = {}) {
  const pairs = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null) {
        pairs.append(name, one instanceof Date ? one.toISOString() : String(one));
      }
    }
  }
  return pairs.size > 0 ? `?${pairs}` : "";
}

function sleep(seconds, signal) {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const timer = setTimeout(done, seconds * 1000);
    signal?.addEventListener("abort", stopped, { once: true });
    function done() {
      signal?.removeEventListener("abort", stopped);
      resolve();
    }
    function stopped() {
      clearTimeout(timer);
      reject(signal.reason);
    }
  });
}
