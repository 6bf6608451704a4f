// Not run, only type-checked: statements that must pass the type checker, and statements that must not.
import { Client, Problem, type JobView, type StreamEvent } from "../client.js";

export async function use(client: Client): Promise<string> {
  const made = await client.enqueue("convert", { pdf: "a.pdf" }, { owner: "alice", priority: "high", deadline: "20m" });
  const job: JobView = await client.wait(made.id, { timeoutSeconds: 5 });
  for await (const one of client.jobs({ state: ["failed"], limit: 10 })) {
    await client.retryJob(one.id, { from_step: "write" }, { ifMatch: "*" });
  }
  for await (const event of client.events({ kind: "complete" })) {
    const told: StreamEvent = event;
    return told.id;
  }
  const counted = await client.beginOperation({ action: "cancel", filter: { owner: "alice" }, dry_run: true });
  try {
    await client.removeWebhook("x");
  } catch (error) {
    if (error instanceof Problem && error.code === "NOT_FOUND") {
      return error.detail;
    }
  }
  // @ts-expect-error: an unknown state
  client.jobs({ state: "sleeping" });
  // @ts-expect-error: a job needs a task
  await client.enqueueJob({ args: {} });
  // @ts-expect-error: an unknown code
  if (new Problem().code === "NONSENSE") {
    return "";
  }
  return `${job.state} ${counted.matched}`;
}
