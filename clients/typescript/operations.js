// Made by `python -m tools.openapi`: change the API, not this file.

/** One part of a path, whatever is in it. */
function part(value) {
  const text = String(value);
  if (text === "" || text === "." || text === "..") {
    throw new TypeError(`"${text}" is no id and no name; give the one that the API told`);
  }
  return encodeURIComponent(text);
}

/** The operations of the API. `Client` sends them. */
export class Operations {
  enqueueJob(body, options = {}) {
    return this.send({
      method: "POST",
      path: "/api/v1/jobs",
      body,
      headers: { "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 200: "json", 201: "json" },
    }, options);
  }

  listJobs(query = {}, options = {}) {
    return this.send({
      method: "GET",
      path: "/api/v1/jobs",
      query,
      answers: { 200: "json" },
    }, options);
  }

  enqueueJobs(body, options = {}) {
    return this.send({
      method: "POST",
      path: "/api/v1/jobs/batch",
      body,
      headers: { "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 201: "json" },
    }, options);
  }

  getJob(jobId, query = {}, options = {}) {
    return this.send({
      method: "GET",
      path: `/api/v1/jobs/${part(jobId)}`,
      query,
      answers: { 200: "json" },
    }, options);
  }

  getJobEvents(jobId, query = {}, options = {}) {
    return this.send({
      method: "GET",
      path: `/api/v1/jobs/${part(jobId)}/events`,
      query,
      answers: { 200: "json" },
    }, options);
  }

  getJobAttempts(jobId, query = {}, options = {}) {
    return this.send({
      method: "GET",
      path: `/api/v1/jobs/${part(jobId)}/attempts`,
      query,
      answers: { 200: "json" },
    }, options);
  }

  getJobLateResults(jobId, query = {}, options = {}) {
    return this.send({
      method: "GET",
      path: `/api/v1/jobs/${part(jobId)}/late-results`,
      query,
      answers: { 200: "json" },
    }, options);
  }

  getJobResult(jobId, options = {}) {
    return this.send({
      method: "GET",
      path: `/api/v1/jobs/${part(jobId)}/result`,
      answers: { 200: "json" },
    }, options);
  }

  explainJob(jobId, options = {}) {
    return this.send({
      method: "GET",
      path: `/api/v1/jobs/${part(jobId)}/explain`,
      answers: { 200: "json" },
    }, options);
  }

  retryJob(jobId, body = {}, options = {}) {
    return this.send({
      method: "POST",
      path: `/api/v1/jobs/${part(jobId)}/retry`,
      body,
      headers: { "If-Match": options.ifMatch, "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 200: "json" },
    }, options);
  }

  cancelJob(jobId, body = {}, options = {}) {
    return this.send({
      method: "POST",
      path: `/api/v1/jobs/${part(jobId)}/cancel`,
      body,
      headers: { "If-Match": options.ifMatch, "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 200: "json" },
    }, options);
  }

  beginOperation(body, options = {}) {
    return this.send({
      method: "POST",
      path: "/api/v1/operations",
      body,
      headers: { "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 200: "json", 202: "json" },
    }, options);
  }

  listOperations(query = {}, options = {}) {
    return this.send({
      method: "GET",
      path: "/api/v1/operations",
      query,
      answers: { 200: "json" },
    }, options);
  }

  getOperation(operationId, options = {}) {
    return this.send({
      method: "GET",
      path: `/api/v1/operations/${part(operationId)}`,
      answers: { 200: "json" },
    }, options);
  }

  cancelOperation(operationId, options = {}) {
    return this.send({
      method: "POST",
      path: `/api/v1/operations/${part(operationId)}/cancel`,
      headers: { "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 200: "json" },
    }, options);
  }

  listDeadLetters(query = {}, options = {}) {
    return this.send({
      method: "GET",
      path: "/api/v1/dead-letters",
      query,
      answers: { 200: "json" },
    }, options);
  }

  listDeadLetterGroups(query = {}, options = {}) {
    return this.send({
      method: "GET",
      path: "/api/v1/dead-letters/groups",
      query,
      answers: { 200: "json" },
    }, options);
  }

  getDeadLetter(jobId, query = {}, options = {}) {
    return this.send({
      method: "GET",
      path: `/api/v1/dead-letters/${part(jobId)}`,
      query,
      answers: { 200: "json" },
    }, options);
  }

  redriveDeadLetter(jobId, body = {}, options = {}) {
    return this.send({
      method: "POST",
      path: `/api/v1/dead-letters/${part(jobId)}/redrive`,
      body,
      headers: { "If-Match": options.ifMatch, "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 200: "json" },
    }, options);
  }

  discardDeadLetter(jobId, body, options = {}) {
    return this.send({
      method: "POST",
      path: `/api/v1/dead-letters/${part(jobId)}/discard`,
      body,
      headers: { "If-Match": options.ifMatch, "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 200: "json" },
    }, options);
  }

  listTopics(options = {}) {
    return this.send({
      method: "GET",
      path: "/api/v1/topics",
      answers: { 200: "json" },
    }, options);
  }

  listMessages(query = {}, options = {}) {
    return this.send({
      method: "GET",
      path: "/api/v1/messages",
      query,
      answers: { 200: "json" },
    }, options);
  }

  getMessage(messageId, options = {}) {
    return this.send({
      method: "GET",
      path: `/api/v1/messages/${part(messageId)}`,
      answers: { 200: "json" },
    }, options);
  }

  replayMessage(messageId, options = {}) {
    return this.send({
      method: "POST",
      path: `/api/v1/messages/${part(messageId)}/replay`,
      headers: { "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 200: "json" },
    }, options);
  }

  parkMessage(messageId, body, options = {}) {
    return this.send({
      method: "POST",
      path: `/api/v1/messages/${part(messageId)}/park`,
      body,
      headers: { "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 200: "json" },
    }, options);
  }

  discardMessage(messageId, body, options = {}) {
    return this.send({
      method: "POST",
      path: `/api/v1/messages/${part(messageId)}/discard`,
      body,
      headers: { "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 200: "json" },
    }, options);
  }

  listQueues(query = {}, options = {}) {
    return this.send({
      method: "GET",
      path: "/api/v1/queues",
      query,
      answers: { 200: "json" },
    }, options);
  }

  listLanes(query = {}, options = {}) {
    return this.send({
      method: "GET",
      path: "/api/v1/lanes",
      query,
      answers: { 200: "json" },
    }, options);
  }

  listHolds(options = {}) {
    return this.send({
      method: "GET",
      path: "/api/v1/holds",
      answers: { 200: "json" },
    }, options);
  }

  pauseScope(body, options = {}) {
    return this.send({
      method: "POST",
      path: "/api/v1/pause",
      body,
      headers: { "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 200: "json" },
    }, options);
  }

  resumeScope(body, options = {}) {
    return this.send({
      method: "POST",
      path: "/api/v1/resume",
      body,
      headers: { "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 200: "json" },
    }, options);
  }

  pauseQueue(name, body = {}, options = {}) {
    return this.send({
      method: "POST",
      path: `/api/v1/queues/${part(name)}/pause`,
      body,
      headers: { "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 200: "json" },
    }, options);
  }

  resumeQueue(name, options = {}) {
    return this.send({
      method: "POST",
      path: `/api/v1/queues/${part(name)}/resume`,
      headers: { "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 200: "json" },
    }, options);
  }

  listBreakers(options = {}) {
    return this.send({
      method: "GET",
      path: "/api/v1/breakers",
      answers: { 200: "json" },
    }, options);
  }

  getBreaker(name, options = {}) {
    return this.send({
      method: "GET",
      path: `/api/v1/breakers/${part(name)}`,
      answers: { 200: "json" },
    }, options);
  }

  openBreaker(name, body = {}, options = {}) {
    return this.send({
      method: "POST",
      path: `/api/v1/breakers/${part(name)}/open`,
      body,
      headers: { "If-Match": options.ifMatch, "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 200: "json" },
    }, options);
  }

  closeBreaker(name, body = {}, options = {}) {
    return this.send({
      method: "POST",
      path: `/api/v1/breakers/${part(name)}/close`,
      body,
      headers: { "If-Match": options.ifMatch, "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 200: "json" },
    }, options);
  }

  tryBreaker(name, body = {}, options = {}) {
    return this.send({
      method: "POST",
      path: `/api/v1/breakers/${part(name)}/trial`,
      body,
      headers: { "If-Match": options.ifMatch, "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 200: "json" },
    }, options);
  }

  listSchedules(options = {}) {
    return this.send({
      method: "GET",
      path: "/api/v1/schedules",
      answers: { 200: "json" },
    }, options);
  }

  pauseSchedule(name, body = {}, options = {}) {
    return this.send({
      method: "POST",
      path: `/api/v1/schedules/${part(name)}/pause`,
      body,
      headers: { "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 200: "json" },
    }, options);
  }

  resumeSchedule(name, options = {}) {
    return this.send({
      method: "POST",
      path: `/api/v1/schedules/${part(name)}/resume`,
      headers: { "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 200: "json" },
    }, options);
  }

  forgetSchedule(name, options = {}) {
    return this.send({
      method: "POST",
      path: `/api/v1/schedules/${part(name)}/forget`,
      headers: { "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 200: "json" },
    }, options);
  }

  listOwners(options = {}) {
    return this.send({
      method: "GET",
      path: "/api/v1/owners",
      answers: { 200: "json" },
    }, options);
  }

  getOwner(owner, options = {}) {
    return this.send({
      method: "GET",
      path: `/api/v1/owners/${part(owner)}`,
      answers: { 200: "json" },
    }, options);
  }

  listWorkers(options = {}) {
    return this.send({
      method: "GET",
      path: "/api/v1/workers",
      answers: { 200: "json" },
    }, options);
  }

  getWorkersStatus(options = {}) {
    return this.send({
      method: "GET",
      path: "/api/v1/admin/workers/status",
      answers: { 200: "json" },
    }, options);
  }

  listStuckJobs(query = {}, options = {}) {
    return this.send({
      method: "GET",
      path: "/api/v1/admin/jobs/stuck",
      query,
      answers: { 200: "json" },
    }, options);
  }

  searchStuckJobs(body = {}, options = {}) {
    return this.send({
      method: "POST",
      path: "/api/v1/admin/jobs/stuck",
      body,
      answers: { 200: "json" },
    }, options);
  }

  processStuckJobs(body = {}, options = {}) {
    return this.send({
      method: "POST",
      path: "/api/v1/admin/jobs/process-stuck",
      body,
      headers: { "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 200: "json" },
    }, options);
  }

  pauseRetryScheduler(body = {}, options = {}) {
    return this.send({
      method: "POST",
      path: "/api/v1/admin/retry-scheduler/pause",
      body,
      headers: { "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 200: "json" },
    }, options);
  }

  resumeRetryScheduler(body = {}, options = {}) {
    return this.send({
      method: "POST",
      path: "/api/v1/admin/retry-scheduler/resume",
      body,
      headers: { "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 200: "json" },
    }, options);
  }

  listKeys(options = {}) {
    return this.send({
      method: "GET",
      path: "/api/v1/keys",
      answers: { 200: "json" },
    }, options);
  }

  createKey(body, options = {}) {
    return this.send({
      method: "POST",
      path: "/api/v1/keys",
      body,
      headers: { "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 201: "json" },
    }, options);
  }

  revokeKey(keyId, body = {}, options = {}) {
    return this.send({
      method: "POST",
      path: `/api/v1/keys/${part(keyId)}/revoke`,
      body,
      headers: { "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 200: "json" },
    }, options);
  }

  rotateKey(keyId, body = {}, options = {}) {
    return this.send({
      method: "POST",
      path: `/api/v1/keys/${part(keyId)}/rotate`,
      body,
      headers: { "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 201: "json" },
    }, options);
  }

  listWebhooks(options = {}) {
    return this.send({
      method: "GET",
      path: "/api/v1/webhooks",
      answers: { 200: "json" },
    }, options);
  }

  createWebhook(body, options = {}) {
    return this.send({
      method: "POST",
      path: "/api/v1/webhooks",
      body,
      headers: { "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 201: "json" },
    }, options);
  }

  createInboundWebhook(body = {}, options = {}) {
    return this.send({
      method: "POST",
      path: "/api/v1/webhooks/inbound",
      body,
      headers: { "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 201: "json" },
    }, options);
  }

  getWebhook(webhookId, options = {}) {
    return this.send({
      method: "GET",
      path: `/api/v1/webhooks/${part(webhookId)}`,
      answers: { 200: "json" },
    }, options);
  }

  removeWebhook(webhookId, options = {}) {
    return this.send({
      method: "DELETE",
      path: `/api/v1/webhooks/${part(webhookId)}`,
      answers: { 204: "none" },
    }, options);
  }

  rotateWebhookSecret(webhookId, body = {}, options = {}) {
    return this.send({
      method: "POST",
      path: `/api/v1/webhooks/${part(webhookId)}/rotate-secret`,
      body,
      headers: { "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 200: "json" },
    }, options);
  }

  retireWebhookSecret(webhookId, options = {}) {
    return this.send({
      method: "POST",
      path: `/api/v1/webhooks/${part(webhookId)}/retire-secret`,
      headers: { "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 200: "json" },
    }, options);
  }

  enableWebhook(webhookId, options = {}) {
    return this.send({
      method: "POST",
      path: `/api/v1/webhooks/${part(webhookId)}/enable`,
      headers: { "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 200: "json" },
    }, options);
  }

  disableWebhook(webhookId, options = {}) {
    return this.send({
      method: "POST",
      path: `/api/v1/webhooks/${part(webhookId)}/disable`,
      headers: { "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 200: "json" },
    }, options);
  }

  testWebhook(webhookId, options = {}) {
    return this.send({
      method: "POST",
      path: `/api/v1/webhooks/${part(webhookId)}/test`,
      headers: { "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 202: "json" },
    }, options);
  }

  replayWebhook(webhookId, body = {}, options = {}) {
    return this.send({
      method: "POST",
      path: `/api/v1/webhooks/${part(webhookId)}/replay`,
      body,
      headers: { "Idempotency-Key": options.idempotencyKey },
      takesKey: true,
      answers: { 202: "json" },
    }, options);
  }

  getLiveness(options = {}) {
    return this.send({
      method: "GET",
      path: "/livez",
      answers: { 200: "text" },
    }, options);
  }

  getReadiness(options = {}) {
    return this.send({
      method: "GET",
      path: "/readyz",
      answers: { 200: "text", 503: "text" },
    }, options);
  }

  getHealth(options = {}) {
    return this.send({
      method: "GET",
      path: "/api/v1/health",
      answers: { 200: "json", 503: "json" },
    }, options);
  }

  getMetrics(options = {}) {
    return this.send({
      method: "GET",
      path: "/metrics",
      answers: { 200: "text" },
    }, options);
  }

  getOpenapi(options = {}) {
    return this.send({
      method: "GET",
      path: "/api/v1/openapi.json",
      answers: { 200: "json" },
    }, options);
  }
}
