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

/** How often a client repeats a request, and how long it waits. */
export interface Patience {
  /** How often a request is sent, including the first time. */
  tries?: number;
  /** The pause before the second try. It doubles with each try. */
  baseSeconds?: number;
  /** How often a client tries to resume an interrupted stream. */
  streamTries?: number;
  /** The longest pause. A client that is asked to wait longer gives up at once. */
  longestSeconds?: number;
}

export interface ClientOptions {
  /** Sent as `Authorization: Bearer …`. */
  key?: string;
  timeoutSeconds?: number;
  patience?: Patience;
  /** Replaces the platform's `fetch`. */
  fetch?: typeof globalThis.fetch;
  /** Replaces the pauses, for tests. */
  sleep?: (seconds: number, signal?: AbortSignal) => Promise<void>;
}

export interface WaitOptions extends CallOptions {
  timeoutSeconds?: number;
}

export interface ListenOptions extends CallOptions {
  /** The `id` of the last event that you have. Without it, the stream starts now. */
  after?: string;
  kind?: string | string[];
  owner?: string;
  /** Only events of this job. */
  jobId?: string;
}

/** An event. The kind `reset` means that events were removed before you could read them: read the current state again. */
export interface StreamEvent {
  /** Pass it as `after` to continue after this event. */
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
 * A Holdfast API. Requests that are safe to repeat are repeated after a lost connection, 429 or 503. Requests that change
 * something have an Idempotency-Key, so they are done once even if they are sent several times.
 */
export declare class Client extends Operations {
  constructor(url: string, options?: ClientOptions);
  readonly url: string;
  /** Enqueues a job. Pass your own `idempotencyKey` if your program itself may be run again. */
  enqueue(
    task: string,
    args?: Record<string, unknown>,
    options?: Omit<JobRequest, "task" | "args"> & NamedOptions,
  ): Promise<EnqueuedView>;
  /** All jobs that match, newest first, read page by page. */
  jobs(query?: ListJobsQuery, options?: CallOptions): AsyncGenerator<JobView, void, undefined>;
  /** All dead letters that match, oldest first, read page by page. */
  deadLetters(query?: ListDeadLettersQuery, options?: CallOptions): AsyncGenerator<DeadLetterView, void, undefined>;
  /** Waits until the job has ended, and returns it. */
  wait(jobId: string, options?: WaitOptions): Promise<JobView>;
  /** Waits for the job's result. Throws a `Problem` with the code JOB_FAILED when it ends without one. */
  result(jobId: string, options?: WaitOptions): Promise<unknown>;
  /** Yields events as they happen. An interrupted stream is resumed, without missing or repeated events. */
  events(options?: ListenOptions): AsyncGenerator<StreamEvent, void, undefined>;
}

/** The base class of all errors of the client. */
export declare class ClientError extends Error {}

/** There was no response. It is not known whether the request was carried out. */
export declare class Unreachable extends ClientError {}

/** The response is not one of this API. */
export declare class BadAnswer extends ClientError {}

/** The API refused the request, with a problem document (RFC 9457). */
export declare class Problem extends ClientError {
  readonly status: number;
  /** Stable: programs can rely on it. */
  readonly code: ProblemFacts["code"];
  readonly detail: string;
  readonly instance: string;
  readonly errors: Array<{ pointer: string; detail: string }>;
  readonly facts: ProblemFacts;
  /** In seconds. */
  readonly retryAfter: number | undefined;
}
