import {
  CallOptions,
  DeadLetterView,
  EnqueuedView,
  JobRequest,
  JobView,
  ListDeadLettersQuery,
  ListJobsQuery,
  NamedOptions,
  Operations,
  Problem as ProblemFacts,
} from "./operations.js";

export * from "./operations.js";

/** How long a client goes on asking. */
export interface Patience {
  /** The first one counts. */
  tries?: number;
  /** The pause before the second; it doubles. */
  baseSeconds?: number;
  /** To take up a stream that was cut off. */
  streamTries?: number;
  /** A pause is never longer; who is told to wait longer gives up at once. */
  longestSeconds?: number;
}

export interface ClientOptions {
  /** Sent as `Authorization: Bearer …`. */
  key?: string;
  timeoutSeconds?: number;
  patience?: Patience;
  /** Instead of the one that the platform has. */
  fetch?: typeof globalThis.fetch;
  /** Instead of waiting in real time. */
  sleep?: (seconds: number, signal?: AbortSignal) => Promise<void>;
}

export interface WaitOptions extends CallOptions {
  timeoutSeconds?: number;
}

export interface ListenOptions extends CallOptions {
  /** The `id` of the last event you have; without it, from now on. */
  after?: string;
  kind?: string | string[];
  owner?: string;
  /** Only of this job. */
  jobId?: string;
}

/** Something that happened. Of kind `reset`: events were removed before you could hear them; read anew what you know. */
export interface StreamEvent {
  /** Give it as `after` to go on behind it. */
  id: string;
  kind: string;
  at: string | null;
  job_id: string | null;
  task: string | null;
  queue: string | null;
  owner: string | null;
  attempt: number;
  epoch: number;
  meta: Record<string, unknown>;
}

/**
 * A Holdfast API. What may be sent again is: after a lost connection, 429 or 503. Whatever changes something carries an
 * Idempotency-Key, so that it happens once however often it is sent.
 */
export declare class Client extends Operations {
  constructor(url: string, options?: ClientOptions);
  readonly url: string;
  /** A new job. Give an `idempotencyKey` of your own where your program may itself be run again. */
  enqueue(
    task: string,
    args?: Record<string, unknown>,
    options?: Omit<JobRequest, "task" | "args"> & NamedOptions,
  ): Promise<EnqueuedView>;
  /** All jobs that match, newest first, read page by page. */
  jobs(query?: ListJobsQuery, options?: CallOptions): AsyncGenerator<JobView, void, undefined>;
  /** All dead letters that match, oldest first, read page by page. */
  deadLetters(query?: ListDeadLettersQuery, options?: CallOptions): AsyncGenerator<DeadLetterView, void, undefined>;
  /** The job when it has ended, however it ended. */
  wait(jobId: string, options?: WaitOptions): Promise<JobView>;
  /** Its result, waited for; a `Problem` with the code JOB_FAILED when it ends without one. */
  result(jobId: string, options?: WaitOptions): Promise<unknown>;
  /** What happens, as it happens. A stream that is cut off is taken up where it was: nothing missed, nothing told twice. */
  events(options?: ListenOptions): AsyncGenerator<StreamEvent, void, undefined>;
}

/** Whatever goes wrong between a client and what it asked for. */
export declare class ClientError extends Error {}

/** No answer came. Whether the request was carried out is not known, unless it is one that only looks. */
export declare class Unreachable extends ClientError {}

/** What came back is not an answer of this API. */
export declare class BadAnswer extends ClientError {}

/** The API refused, and says why (RFC 9457). */
export declare class Problem extends ClientError {
  readonly status: number;
  /** Stable: programs may rely on it. */
  readonly code: ProblemFacts["code"];
  readonly detail: string;
  readonly instance: string;
  readonly errors: Array<{ pointer: string; detail: string }>;
  readonly facts: ProblemFacts;
  /** Seconds. */
  readonly retryAfter: number | undefined;
}
