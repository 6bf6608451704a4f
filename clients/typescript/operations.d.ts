// Made by `python -m tools.openapi`: change the API, not this file.

/** What every call takes beside its own arguments. */
export interface CallOptions {
  /** Ends the call. */
  signal?: AbortSignal;
}

export interface NamedOptions extends CallOptions {
  /** A name for this request: sent again with it, it is answered again and done once. Without it one is made. */
  idempotencyKey?: string;
}

export interface GuardedOptions extends CallOptions {
  /** The `ETag` it was read with: refused with 412 when it has changed since. */
  ifMatch?: string;
}

export interface AttemptView {
  epoch: number;
  generation: number;
  attempt: number;
  worker: string | null;
  started_at: string;
  ended_at: string | null;
  duration_ms: number | null;
  outcome: string | null;
  error_code: string | null;
  error_message: string | null;
  /** For engineers; not shown to keys of owners. */
  error_detail: string | null;
  fingerprint: string | null;
  gateway_status: number | null;
  /** Where it was raised: files and lines, without source. Not shown to keys of owners. */
  traceback: string | null;
  logs: Array<string>;
}

export interface Attempts {
  attempts: Array<AttemptView>;
  /** The cursor to the next page; null: this was the last. */
  next: string | null;
}

export interface BreakerView {
  /** With its shard: name#shard. */
  dependency: string;
  state: string;
  version: number;
  since: string | null;
  opened_at: string | null;
  next_trial_at: string | null;
  reopens: number;
}

export interface Breakers {
  breakers: Array<DependencyView>;
}

export interface CheckView {
  name: string;
  status: Level;
  /** What was found. */
  seen: unknown;
  /** From where on it is worth a word. */
  threshold: unknown;
  text: string;
}

export interface DeadLetterGroupView {
  fingerprint: string;
  task: string;
  code: string;
  message: string;
  count: number;
  first_at: string;
  last_at: string;
  sample: string;
}

export interface DeadLetterGroups {
  groups: Array<DeadLetterGroupView>;
}

export interface DeadLetterPage {
  dead_letters: Array<DeadLetterView>;
  next: string | null;
}

export interface DeadLetterView {
  /** The job's own id. */
  id: string;
  task: string;
  queue: string;
  owner: string | null;
  code: string;
  message: string;
  /** For engineers; not shown to keys of owners. */
  detail: string | null;
  fingerprint: string;
  attempts: number;
  at: string;
  /** Of its last attempt, where one letter is asked for. Not shown to keys of owners. */
  traceback: string | null;
  /** Only with `include=args`; values of secret names are hidden. */
  args?: unknown;
}

export interface DependencyView {
  /** With its shard: name#shard. */
  dependency: string;
  state: string;
  version: number;
  since: string | null;
  opened_at: string | null;
  next_trial_at: string | null;
  reopens: number;
  votes: number;
  callers: number;
  limit: number;
  in_flight: number;
  latency_seconds: number | null;
  calls: number;
  failures: number;
}

export interface DiscardRequest {
  reason: string;
}

export interface EnqueuedPage {
  jobs: Array<EnqueuedView>;
}

export interface EnqueuedView {
  id: string;
  state: string;
  /** A twin with the same dedupe key stands in for this call. */
  duplicate: boolean;
}

export interface EventPage {
  events: Array<EventView>;
  next: string | null;
}

export interface EventView {
  id: string;
  at: string;
  kind: string;
  job_id: string;
  epoch: number;
  attempt: number;
  meta: Record<string, unknown>;
}

export interface ExplanationView {
  sentence: string;
  reason: string;
  facts: Record<string, unknown>;
  expected_at: string | null;
}

export interface ForgottenSchedule {
  name: string;
  forgotten: boolean;
}

export interface HealthView {
  /** The worst of all checks. */
  status: Level;
  checks: Array<CheckView>;
}

export interface HeldView {
  kind: ScopeKind;
  name: string;
  cause: string;
  /** null: until somebody resumes it. */
  until: string | null;
  reason: string;
  by: string;
  at: string;
}

export interface Holds {
  holds: Array<HeldView>;
}

export interface InboundWebhookRequest {
  /** Whose jobs it may retry. A key of an owner may leave it out. */
  owner?: string | null;
  /** Why; on record with what was done. */
  description?: string;
}

export interface JobPage {
  jobs: Array<JobView>;
  /** The cursor to the next page; null: this was the last. */
  next: string | null;
}

/** A call of a task, to be done later. */
export interface JobRequest {
  /** Which task; one that this app declares, and opens to keys of owners by `http=True` if yours is one. */
  task: string;
  /** Its arguments by name, checked as the task declares them. */
  args?: Record<string, unknown>;
  /** Whose job it is. A key of an owner may leave it out. */
  owner?: string | null;
  /** A number, or the name of a level: low, normal, high. */
  priority?: number | "low" | "normal" | "high";
  /** Instead of the task's own. A key of an owner names only declared ones. */
  queue?: string | null;
  /** Of the service it calls. Not for keys of owners. */
  shard?: string | null;
  /** Not before this moment. */
  run_at?: string | null;
  /** Not before this much time has passed. */
  delay?: string | null;
  /** By when it must be done: a moment or a duration. */
  deadline?: string | null;
  /** How late it may start and still be of use. */
  start_within?: string | null;
  /** A twin of this key stands in for the new job. */
  dedupe_key?: string | null;
  /** How long a complete twin does. */
  dedupe_for?: string | null;
  /** Jobs of one key run one at a time. */
  key?: string | null;
  tags?: Array<string>;
  max_attempts?: number | null;
}

/** A job as everyone sees it. */
export interface JobView {
  id: string;
  task: string;
  queue: string;
  owner: string | null;
  priority: number;
  state: string;
  generation: number;
  epoch: number;
  attempt: number;
  max_attempts: number;
  crashes: number;
  run_at: string;
  created_at: string;
  queued_at: string;
  started_at: string | null;
  finished_at: string | null;
  failed_at: string | null;
  last_attempt_at: string | null;
  updated_at: string;
  deadline_at: string | null;
  expired_at: string | null;
  leased_by: string | null;
  lease_expires_at: string | null;
  error_code: string | null;
  error_message: string | null;
  last_failure: Record<string, unknown> | null;
  retry_type: string;
  manual_retry_count: number;
  is_retryable: boolean;
  /** Only of one job, not in lists; large ones are at /result. */
  result: unknown;
  artifact: string | null;
  tags: Array<string>;
  progress: Record<string, unknown> | null;
  key: string | null;
  /** Only with `include=args`; values of secret names are hidden. */
  args?: unknown;
}

/** Many calls: all are stored, or none. */
export interface JobsRequest {
  jobs: Array<JobRequest>;
}

export interface KeyRequest {
  role: Role;
  /** For the role owner: whose jobs it reaches. */
  owner?: string | null;
  /** What people call it. */
  name?: string;
  /** After it the key ends; null: it does not. */
  lasts?: string | null;
}

export interface KeyView {
  id: string;
  name: string;
  role: Role;
  owner: string | null;
  created_at: string;
  expires_at: string | null;
  revoked_at: string | null;
  last_used_at: string | null;
}

export interface Keys {
  keys: Array<KeyView>;
}

export interface LaneView {
  label: string;
  queue: string;
  task: string;
  dependency: string;
  fair: boolean;
  waiting: number;
  held: HeldView | null;
  breaker: string | null;
  limit: number | null;
  in_flight: number | null;
}

export interface Lanes {
  lanes: Array<LaneView>;
  /** The cursor to the next page; null: this was the last. */
  next: string | null;
}

export interface LateResultView {
  epoch: number;
  at: string;
  reason: string;
  outcome: string;
  result: unknown;
  is_late: boolean;
}

export interface LateResults {
  late_results: Array<LateResultView>;
  /** The cursor to the next page; null: this was the last. */
  next: string | null;
}

export type Level = "pass" | "warn" | "fail";

export interface MatchCount {
  dry_run: boolean;
  matched: number;
}

export interface MessagePage {
  messages: Array<MessageView>;
  next: string | null;
}

export type MessageState = "waiting" | "published" | "parked";

export interface MessageView {
  /** The order in which they were stored. */
  number: number;
  id: string;
  topic: string;
  key: string | null;
  state: MessageState;
  /** That failed. */
  tries: number;
  /** Of the last try, or why it is parked. */
  error: string | null;
  /** Of its body. */
  bytes: number;
  headers: Record<string, string>;
  created_at: string;
  not_before: string | null;
  /** When it was published or parked. */
  settled_at: string | null;
}

export interface MessageWithBody {
  /** The order in which they were stored. */
  number: number;
  id: string;
  topic: string;
  key: string | null;
  state: MessageState;
  /** That failed. */
  tries: number;
  /** Of the last try, or why it is parked. */
  error: string | null;
  /** Of its body. */
  bytes: number;
  headers: Record<string, string>;
  created_at: string;
  not_before: string | null;
  /** When it was published or parked. */
  settled_at: string | null;
  /** As text; what is none, as hexadecimal digits. */
  body: string;
  is_text: boolean;
}

export interface MovedJob {
  id: string;
  state: string;
}

export interface MovedMessage {
  id: string;
  /** waiting, parked, or discarded: then it is gone. */
  state: string;
}

export interface NewKeyView {
  id: string;
  name: string;
  role: Role;
  owner: string | null;
  created_at: string;
  expires_at: string | null;
  revoked_at: string | null;
  last_used_at: string | null;
  /** Kept nowhere: this is the only time it is told. */
  secret: string;
}

export type OperationAction = "redrive" | "discard" | "retry" | "cancel";

/** Which jobs (retry, cancel) or dead letters (redrive, discard); all that is given must match, nothing given is all. */
export interface OperationFilter {
  ids?: Array<string> | null;
  state?: Array<State> | null;
  task?: Array<string> | null;
  queue?: Array<string> | null;
  owner?: string | null;
  tag?: string | null;
  key?: string | null;
  error_code?: string | null;
  created_after?: string | null;
  created_before?: string | null;
  /** Of dead letters: the error code of their last attempt. */
  code?: Array<string> | null;
  /** Of dead letters: their cause. */
  fingerprint?: string | null;
  died_after?: string | null;
  died_before?: string | null;
  /** With the engine's own jobs, which are left out unless they are named. */
  internal?: boolean | null;
}

export interface OperationRequest {
  action: OperationAction;
  filter: OperationFilter;
  /** The maximum number of jobs a second. */
  rate?: number | null;
  /** Of redrive: another queue than their own. */
  to_queue?: string | null;
  /** Why; on record with what was done. */
  reason?: string;
  /** Only count what matches. */
  dry_run?: boolean;
}

export interface OperationView {
  id: string;
  /** redrive, discard, retry, cancel or replay. */
  action: string;
  /** The filter; of a replay the webhook, `after` and `before`. */
  filter: Record<string, unknown>;
  by: string;
  options: Record<string, unknown>;
  rate: number | null;
  owner: string | null;
  progress: Progress;
  /** When it began. A replay counts nothing beforehand. */
  matched: number;
  done: number;
  /** They had moved on meanwhile. */
  refused: number;
  error: string | null;
  created_at: string;
  updated_at: string;
}

export interface Operations {
  operations: Array<OperationView>;
}

/** Days and months are of UTC. */
export interface OwnerView {
  owner: string;
  /** Its share in fair lines. */
  weight: number;
  /** How often its jobs may start. */
  rate: string | null;
  concurrency: number | null;
  jobs: QuotaView;
  cost: QuotaView;
}

export interface Owners {
  owners: Array<OwnerView>;
}

export interface PauseRequest {
  /** After it, work resumes by itself; null: when resumed. */
  duration?: string | null;
  /** Why; on record with what was done. */
  reason?: string;
}

/** What to pause: a queue, task, lane, dependency, schedule or duty. */
export interface PauseScopeRequest {
  /** After it, work resumes by itself; null: when resumed. */
  duration?: string | null;
  /** Why; on record with what was done. */
  reason?: string;
  kind: ScopeKind;
  name: string;
}

export interface PauseTypesRequest {
  /** After it they resume by themselves; null: when resumed. */
  duration?: string | null;
  types?: Array<Type>;
  /** Why; on record with what was done. */
  reason?: string;
}

export interface Paused {
  kind: ScopeKind;
  name: string;
  paused: boolean;
}

export interface PausedTypes {
  paused: Array<Type>;
  duration: string | null;
}

export interface PeriodUsage {
  used: number;
  /** null: no bound, and then its use is not counted. */
  limit: number | null;
}

export type Progress = "running" | "done" | "cancelled" | "failed";

export interface QueueView {
  name: string;
  tasks: Array<string>;
  waiting: number;
  workers: number;
  held: HeldView | null;
}

export interface Queues {
  queues: Array<QueueView>;
  /** The cursor to the next page; null: this was the last. */
  next: string | null;
}

export interface QuotaView {
  day: PeriodUsage;
  month: PeriodUsage;
}

export interface ReasonRequest {
  /** Why; on record with what was done. */
  reason?: string;
}

export interface ReclaimedJobs {
  found: number;
  /** Taken back from their workers: retried, or dead letters. */
  processed: number;
}

export interface RedriveRequest {
  /** Another queue than its own. A key of an owner names only declared ones. */
  to_queue?: string | null;
}

export interface ReplayRequest {
  /** Behind this event … */
  after?: string;
  /** … and before this one; null: up to now. */
  before?: string | null;
}

export interface ResultView {
  id: string;
  state: string;
  result: unknown;
}

export interface ResumeTypesRequest {
  types?: Array<Type>;
}

export interface Resumed {
  kind: ScopeKind;
  name: string;
  /** Whether there was a pause to end. */
  resumed: boolean;
}

export interface ResumedTypes {
  /** Those of them that were paused. */
  resumed: Array<Type>;
}

export interface Retried {
  id: string;
  state: string;
  queue_position: number;
}

export interface RetryRequest {
  /** Forget this step and every one recorded after it. */
  from_step?: string | null;
  /** Call it with these instead, all of them by name. Its steps are forgotten, unless from_step says which. */
  args?: Record<string, unknown> | null;
}

export interface RevokeKeyRequest {
  /** Not now, but after this while. */
  after?: string | null;
}

export interface RevokedKey {
  id: string;
  revoked: boolean;
}

export type Role = "viewer" | "owner" | "operator" | "admin";

export interface RotateKeyRequest {
  /** How long the old key stays good beside the new one. */
  overlap?: string;
}

export interface RotateSecretRequest {
  /** The old secret stays valid for 24 hours, or until it is retired. */
  keep_old?: boolean;
}

export interface ScheduleView {
  name: string;
  task: string | null;
  when: string | null;
  zone: string | null;
  last: string | null;
  next: string | null;
  held: HeldView | null;
}

export interface Schedules {
  schedules: Array<ScheduleView>;
}

export type ScopeKind = "queue" | "task" | "lane" | "dependency" | "schedule" | "maintenance";

export interface ScopeRequest {
  kind: ScopeKind;
  name: string;
}

export type State = "queued" | "processing" | "complete" | "failed" | "cancelled";

export interface StuckJobs {
  jobs: Array<StuckView>;
}

export interface StuckQuery {
  /** Instead of what each task says. */
  longer_than?: string | null;
  /** Only these. Default: all. */
  tasks?: Array<string>;
  /** Only of this owner. */
  owner?: string | null;
  /** Only these jobs. Default: all. */
  ids?: Array<string>;
  limit?: number;
}

export interface StuckView {
  id: string;
  task: string;
  queue: string;
  attempt: number;
  max_attempts: number;
  worker: string;
  epoch: number;
  /** How long an attempt of its task may take. */
  longer_than: string;
}

export interface TestSent {
  /** The job that sends it; its result is the status of the answer. */
  job_id: string;
}

export interface TopicView {
  topic: string;
  waiting: number;
  parked: number;
  /** How long the one that has waited longest has waited. */
  oldest_seconds: number | null;
}

export interface Topics {
  topics: Array<TopicView>;
}

export type Type = "STUCK_JOBS" | "FAILED_JOBS" | "DELAYED_JOBS";

export interface WebhookPage {
  webhooks: Array<WebhookView>;
}

export interface WebhookRequest {
  url: string;
  /** Kinds of events; none: the ends of jobs; "*": all. */
  events?: Array<string>;
  /** Whose jobs. A key of an owner may leave it out. */
  owner?: string | null;
  /** Why; on record with what was done. */
  description?: string;
}

export interface WebhookView {
  id: string;
  /** It is not told of events; its messages ask for retries. */
  inbound: boolean;
  url: string;
  /** Kinds of events; none: the ends of jobs. */
  events: Array<string>;
  /** Whose jobs it is about; null: everybody's. */
  owner: string | null;
  description: string;
  created_at: string;
  failing_since: string | null;
  disabled_at: string | null;
  disabled_reason: string | null;
  /** How many are valid: two during a rotation. */
  secrets: number;
}

export interface WebhookWithSecret {
  id: string;
  /** It is not told of events; its messages ask for retries. */
  inbound: boolean;
  url: string;
  /** Kinds of events; none: the ends of jobs. */
  events: Array<string>;
  /** Whose jobs it is about; null: everybody's. */
  owner: string | null;
  description: string;
  created_at: string;
  failing_since: string | null;
  disabled_at: string | null;
  disabled_reason: string | null;
  /** How many are valid: two during a rotation. */
  secrets: number;
  /** Shown now and never again. */
  secret: string;
}

export interface WorkerView {
  name: string;
  started_at: string;
  /** When it is taken for lost, unless it is heard of before. */
  expires_at: string;
  /** null: whichever its tasks are in. */
  queues: Array<string> | null;
  /** How many jobs it holds. */
  leases: number;
  /** How many of its handlers wait for another job to end. */
  waiting: number;
}

export interface Workers {
  workers: Array<WorkerView>;
}

export interface WorkersStatus {
  workers: Array<WorkerView>;
  count: number;
  /** Workers that hold jobs. */
  busy: number;
  leases: number;
  /** Duties that are paused. */
  paused: Array<string>;
}

/** What went wrong (RFC 9457). `code` is stable; `detail` is for people. */
export interface Problem {
  type: string;
  title: string;
  status: number;
  detail: string;
  code: "BAD_CURSOR" | "BAD_JSON" | "BAD_REQUEST" | "CONFLICT" | "EXPIRED" | "FORBIDDEN" | "IDEMPOTENCY_KEY_IN_FLIGHT" | "IDEMPOTENCY_KEY_REUSED" | "INSUFFICIENT_CREDITS" | "INTERNAL" | "INVALID" | "JOB_FAILED" | "KEY_IN_URL" | "METHOD_NOT_ALLOWED" | "NOT_FOUND" | "NOT_READY" | "PRECONDITION_FAILED" | "QUOTA_EXCEEDED" | "RATE_LIMITED" | "TOLD_ONCE" | "TOO_LARGE" | "UNAUTHENTICATED" | "UNAVAILABLE" | "UNKNOWN_TASK" | "UNSUPPORTED_MEDIA_TYPE";
  instance: string;
  /** Seconds to wait. */
  retry_after?: number;
  /** The job that stands in the way. */
  job_id?: string;
  errors?: Array<{ pointer: string; detail: string }>;
}

export interface ListJobsQuery {
  state?: Array<State> | State;
  task?: Array<string> | string;
  queue?: Array<string> | string;
  owner?: string | null;
  tag?: string | null;
  key?: string | null;
  error_code?: string | null;
  created_after?: string | null;
  created_before?: string | null;
  /** With the engine's own jobs, which are left out unless they are named. */
  internal?: boolean;
  /** `next` of the page before; leave it out at first. */
  cursor?: string | null;
  /** At most this many; a page never holds more than 500. */
  limit?: number;
}

export interface GetJobQuery {
  /** `args`: with its arguments, those of secret names hidden. */
  include?: "args" | null;
}

export interface GetJobEventsQuery {
  /** `next` of the page before; leave it out at first. */
  cursor?: string | null;
  /** At most this many; a page never holds more than 500. */
  limit?: number;
}

export interface GetJobAttemptsQuery {
  /** `next` of the page before; leave it out at first. */
  cursor?: string | null;
  /** At most this many; a page never holds more than 500. */
  limit?: number;
}

export interface GetJobLateResultsQuery {
  /** `next` of the page before; leave it out at first. */
  cursor?: string | null;
  /** At most this many; a page never holds more than 500. */
  limit?: number;
}

export interface ListOperationsQuery {
  /** At most this many; a page never holds more than 500. */
  limit?: number;
}

export interface ListDeadLettersQuery {
  task?: Array<string> | string;
  queue?: Array<string> | string;
  code?: Array<string> | string;
  fingerprint?: string | null;
  owner?: string | null;
  died_after?: string | null;
  died_before?: string | null;
  /** With the engine's own jobs, which are left out unless they are named. */
  internal?: boolean;
  /** `args`: with its arguments, those of secret names hidden. */
  include?: "args" | null;
  /** `next` of the page before; leave it out at first. */
  cursor?: string | null;
  /** At most this many; a page never holds more than 500. */
  limit?: number;
}

export interface ListDeadLetterGroupsQuery {
  task?: Array<string> | string;
  queue?: Array<string> | string;
  code?: Array<string> | string;
  owner?: string | null;
  /** With the engine's own jobs, which are left out unless they are named. */
  internal?: boolean;
  /** At most this many; a page never holds more than 500. */
  limit?: number;
}

export interface GetDeadLetterQuery {
  /** `args`: with its arguments, those of secret names hidden. */
  include?: "args" | null;
}

export interface ListMessagesQuery {
  topic?: string | null;
  key?: string | null;
  state?: MessageState | null;
  /** `next` of the page before; leave it out at first. */
  cursor?: string | null;
  /** At most this many; a page never holds more than 500. */
  limit?: number;
}

export interface ListQueuesQuery {
  /** `next` of the page before; leave it out at first. */
  cursor?: string | null;
  /** At most this many; a page never holds more than 500. */
  limit?: number;
}

export interface ListLanesQuery {
  /** `next` of the page before; leave it out at first. */
  cursor?: string | null;
  /** At most this many; a page never holds more than 500. */
  limit?: number;
}

export interface ListStuckJobsQuery {
  longer_than?: string | null;
  task?: string | null;
  owner?: string | null;
  /** At most this many; a page never holds more than 500. */
  limit?: number;
}

/** The operations of the API. */
export declare class Operations {
  /** Enqueue a job */
  enqueueJob(body: JobRequest, options?: NamedOptions): Promise<EnqueuedView>;

  /** Jobs by filter, newest first */
  listJobs(query?: ListJobsQuery, options?: CallOptions): Promise<JobPage>;

  /** Enqueue many jobs, all or none */
  enqueueJobs(body: JobsRequest, options?: NamedOptions): Promise<EnqueuedPage>;

  /** One job */
  getJob(jobId: string, query?: GetJobQuery, options?: CallOptions): Promise<JobView>;

  /** What happened to it, oldest first */
  getJobEvents(jobId: string, query?: GetJobEventsQuery, options?: CallOptions): Promise<EventPage>;

  /** Its attempts, each with what it came to */
  getJobAttempts(jobId: string, query?: GetJobAttemptsQuery, options?: CallOptions): Promise<Attempts>;

  /** Results that came after its end, and had no effect */
  getJobLateResults(jobId: string, query?: GetJobLateResultsQuery, options?: CallOptions): Promise<LateResults>;

  /** Its result */
  getJobResult(jobId: string, options?: CallOptions): Promise<ResultView>;

  /** Why it is not running, and when it is expected to */
  explainJob(jobId: string, options?: CallOptions): Promise<ExplanationView>;

  /** Run a failed, cancelled, waiting or stuck job now */
  retryJob(jobId: string, body?: RetryRequest, options?: GuardedOptions & NamedOptions): Promise<Retried>;

  /** Cancel a queued or running job */
  cancelJob(jobId: string, body?: ReasonRequest, options?: GuardedOptions & NamedOptions): Promise<MovedJob>;

  /** Do it to everything that matches */
  beginOperation(body: OperationRequest, options?: NamedOptions): Promise<MatchCount | OperationView>;

  /** Operations, newest first */
  listOperations(query?: ListOperationsQuery, options?: CallOptions): Promise<Operations>;

  /** How an operation stands */
  getOperation(operationId: string, options?: CallOptions): Promise<OperationView>;

  /** Do no more of it; what is done stays done */
  cancelOperation(operationId: string, options?: NamedOptions): Promise<OperationView>;

  /** Dead letters by filter, oldest first */
  listDeadLetters(query?: ListDeadLettersQuery, options?: CallOptions): Promise<DeadLetterPage>;

  /** Dead letters by their cause */
  listDeadLetterGroups(query?: ListDeadLetterGroupsQuery, options?: CallOptions): Promise<DeadLetterGroups>;

  /** One dead letter, by its job's id */
  getDeadLetter(jobId: string, query?: GetDeadLetterQuery, options?: CallOptions): Promise<DeadLetterView>;

  /** Redrive a dead letter */
  redriveDeadLetter(jobId: string, body?: RedriveRequest, options?: GuardedOptions & NamedOptions): Promise<MovedJob>;

  /** Discard a dead letter; its job stays failed */
  discardDeadLetter(jobId: string, body: DiscardRequest, options?: GuardedOptions & NamedOptions): Promise<MovedJob>;

  /** How topics stand in which a message waits or is parked */
  listTopics(options?: CallOptions): Promise<Topics>;

  /** Messages by filter, oldest first */
  listMessages(query?: ListMessagesQuery, options?: CallOptions): Promise<MessagePage>;

  /** One message, with its body */
  getMessage(messageId: string, options?: CallOptions): Promise<MessageWithBody>;

  /** Deliver a published or parked one once more, under its id */
  replayMessage(messageId: string, options?: NamedOptions): Promise<MovedMessage>;

  /** Take a waiting one out of line until it is replayed */
  parkMessage(messageId: string, body: DiscardRequest, options?: NamedOptions): Promise<MovedMessage>;

  /** Give a parked one up, for good */
  discardMessage(messageId: string, body: DiscardRequest, options?: NamedOptions): Promise<MovedMessage>;

  /** How queues stand */
  listQueues(query?: ListQueuesQuery, options?: CallOptions): Promise<Queues>;

  /** How lanes stand */
  listLanes(query?: ListLanesQuery, options?: CallOptions): Promise<Lanes>;

  /** What is held now */
  listHolds(options?: CallOptions): Promise<Holds>;

  /** Start nothing more of it */
  pauseScope(body: PauseScopeRequest, options?: NamedOptions): Promise<Paused>;

  /** End a pause */
  resumeScope(body: ScopeRequest, options?: NamedOptions): Promise<Resumed>;

  /** Pause a queue */
  pauseQueue(name: string, body?: PauseRequest, options?: NamedOptions): Promise<Paused>;

  /** Resume a queue */
  resumeQueue(name: string, options?: NamedOptions): Promise<Resumed>;

  /** How dependencies stand */
  listBreakers(options?: CallOptions): Promise<Breakers>;

  /** One dependency */
  getBreaker(name: string, options?: CallOptions): Promise<DependencyView>;

  /** Hold back all calls to it, for a time or its cooldown; then trials begin */
  openBreaker(name: string, body?: PauseRequest, options?: GuardedOptions & NamedOptions): Promise<BreakerView>;

  /** Let calls to it begin again, without trials */
  closeBreaker(name: string, body?: ReasonRequest, options?: GuardedOptions & NamedOptions): Promise<BreakerView>;

  /** Let its trials begin now */
  tryBreaker(name: string, body?: ReasonRequest, options?: GuardedOptions & NamedOptions): Promise<BreakerView>;

  /** When schedules tick */
  listSchedules(options?: CallOptions): Promise<Schedules>;

  /** Enqueue nothing more by it */
  pauseSchedule(name: string, body?: PauseRequest, options?: NamedOptions): Promise<Paused>;

  /** End its pause */
  resumeSchedule(name: string, options?: NamedOptions): Promise<Resumed>;

  /** Remove one that no code declares any more; a declared one begins again with its next tick */
  forgetSchedule(name: string, options?: NamedOptions): Promise<ForgottenSchedule>;

  /** The owners that the policy file names */
  listOwners(options?: CallOptions): Promise<Owners>;

  /** What an owner may use, and has used */
  getOwner(owner: string, options?: CallOptions): Promise<OwnerView>;

  /** The workers that live */
  listWorkers(options?: CallOptions): Promise<Workers>;

  /** The workers, and what is paused */
  getWorkersStatus(options?: CallOptions): Promise<WorkersStatus>;

  /** Attempts that run on for too long while their worker lives */
  listStuckJobs(query?: ListStuckJobsQuery, options?: CallOptions): Promise<StuckJobs>;

  /** The same, by more than fits in a URL */
  searchStuckJobs(body?: StuckQuery, options?: CallOptions): Promise<StuckJobs>;

  /** Take stuck jobs back from their workers */
  processStuckJobs(body?: StuckQuery, options?: NamedOptions): Promise<ReclaimedJobs>;

  /** Hold what moves jobs by itself */
  pauseRetryScheduler(body?: PauseTypesRequest, options?: NamedOptions): Promise<PausedTypes>;

  /** Let it go on */
  resumeRetryScheduler(body?: ResumeTypesRequest, options?: NamedOptions): Promise<ResumedTypes>;

  /** All keys, those that ended too; oldest first */
  listKeys(options?: CallOptions): Promise<Keys>;

  /** Make a key */
  createKey(body: KeyRequest, options?: NamedOptions): Promise<NewKeyView>;

  /** End a key; other servers may believe it for some seconds more */
  revokeKey(keyId: string, body?: RevokeKeyRequest, options?: NamedOptions): Promise<RevokedKey>;

  /** Make a key in the place of another, which stays good for a while */
  rotateKey(keyId: string, body?: RotateKeyRequest, options?: NamedOptions): Promise<NewKeyView>;

  /** Webhooks, oldest first */
  listWebhooks(options?: CallOptions): Promise<WebhookPage>;

  /** Tell a URL of what happens */
  createWebhook(body: WebhookRequest, options?: NamedOptions): Promise<WebhookWithSecret>;

  /** Let others ask for retries by signed messages */
  createInboundWebhook(body?: InboundWebhookRequest, options?: NamedOptions): Promise<WebhookWithSecret>;

  /** One webhook */
  getWebhook(webhookId: string, options?: CallOptions): Promise<WebhookView>;

  /** Send it nothing more */
  removeWebhook(webhookId: string, options?: CallOptions): Promise<void>;

  /** Make a new secret; for 24 hours messages are signed with both */
  rotateWebhookSecret(webhookId: string, body?: RotateSecretRequest, options?: NamedOptions): Promise<WebhookWithSecret>;

  /** End a rotation: only the newest secret stays valid */
  retireWebhookSecret(webhookId: string, options?: NamedOptions): Promise<WebhookView>;

  /** Begin anew after it was disabled */
  enableWebhook(webhookId: string, options?: NamedOptions): Promise<WebhookView>;

  /** Send it nothing until it is enabled */
  disableWebhook(webhookId: string, options?: NamedOptions): Promise<WebhookView>;

  /** Send it a message about nothing */
  testWebhook(webhookId: string, options?: NamedOptions): Promise<TestSent>;

  /** Begin to send events again; an operation of workers */
  replayWebhook(webhookId: string, body?: ReplayRequest, options?: NamedOptions): Promise<OperationView>;

  /** 200: the process answers. */
  getLiveness(options?: CallOptions): Promise<string>;

  /** 200: the database answers within a second and has the right schema. 503: it does not. */
  getReadiness(options?: CallOptions): Promise<string>;

  /** Whether jobs get done: queues, duties, breakers, pauses, each with its threshold. 503 when a check fails. */
  getHealth(options?: CallOptions): Promise<HealthView>;

  /** The metrics of this process and of the database, in the text format of Prometheus. */
  getMetrics(options?: CallOptions): Promise<string>;

  /** This document */
  getOpenapi(options?: CallOptions): Promise<Record<string, unknown>>;
}
