// The page of the screenshots: request pictures, see them, and retry those that failed, with what it costs.
import { $, Rows, announce, ask, element, follow, lineOf, notice, now, plural, setText, signIn, sizeOf, span, timeOf, until } from "/common.js";

const PAGE_OF_ROWS = 25, MOST_ROWS = 200;
const STATES = { queued: "Queued", waiting: "Waiting to retry", processing: "Taking the picture", complete: "Ready", failed: "Failed", cancelled: "Cancelled" };
const ENDED = new Set(["complete", "failed", "cancelled"]);
const STATE_OF = { QUEUED: "queued", PROCESSING: "processing", COMPLETED: "complete", FAILED: "failed", CANCELLED: "cancelled" };
const ACTIONS = { REQUESTED: "requested", MANUAL_RETRY: "retried by hand", REDRIVEN: "retried by an operator", CANCELLED: "cancelled", DISCARDED: "discarded",
  AUTOMATIC_RETRY: "failed, to be tried again", RECOVERED: "taken back from a worker", FAILED: "failed", SLA_BREACHED: "promise broken", COMPENSATED: "compensated" };

const session = await signIn("Use the key that you were given. With make run, open the address that it printed, or use the key in data/demo.key.");
let account = session.account, limit = PAGE_OF_ROWS;
const positions = new Map(); // job id → its position in the queue when it was retried

// -- what it costs --------------------------------------------------------------------------------------------------
const priceOf = (type) => session.prices[type] ?? 0;
const credits = (count) => plural(count, "credit");

function isShort(price) {
  return account !== null && account.availableCredits < price;
}

function showAccount() {
  const reserved = account && account.reservedCredits ? `, ${account.reservedCredits} reserved` : "";
  const line = account ? `${credits(account.availableCredits)}${reserved}` : "";
  let shown = $("credits");
  if (!shown) $("account").prepend((shown = element("span", { id: "credits", className: "credits" })));
  setText(shown, line);
  const price = priceOf($("format").value === "pdf" ? "PDF_GENERATION" : "SCREENSHOT");
  setText($("take"), price ? `Take it for ${credits(price)}` : "Take it");
}

// -- rows -----------------------------------------------------------------------------------------------------------
function stateOf(job) {
  return job.status === "QUEUED" && job.nextRetryAt && Date.parse(job.nextRetryAt) > now() ? "waiting" : STATE_OF[job.status];
}

function isStuck(job) {
  return session.stuckAfterSec && job.status === "PROCESSING" && now() - Date.parse(job.lockedAt) > session.stuckAfterSec * 1000;
}

// Returns what a retry would cost, or null where none is possible.
function retryPrice(job) {
  if (job.status === "FAILED" || job.status === "CANCELLED") return priceOf(job.type);
  return stateOf(job) === "waiting" || isStuck(job) ? 0 : null; // its credits are still reserved
}

function messageOf(job) {
  const state = stateOf(job), reason = state === "complete" ? "" : job.lastFailureReason || "";
  if (state === "waiting") return `${reason} Next try ${until(job.nextRetryAt)}.`.trim();
  if (isStuck(job)) return "This is taking far too long; you can retry it.";
  if (state === "queued" && positions.has(job.jobId)) return `Retried: position ${positions.get(job.jobId)} in the queue.`;
  return reason;
}

function costOf(job) {
  const price = retryPrice(job);
  if (price === null) return "";
  if (stateOf(job) === "waiting") return "A retry now is free: it replaces the automatic one.";
  if (isShort(price)) return `A retry needs ${credits(price)}; you have ${account.availableCredits}.`;
  const doubt = job.isRetryable ? "" : "Another try will probably fail in the same way. ";
  return price ? `${doubt}A retry takes ${credits(price)}, and gives ${price === 1 ? "it" : "them"} back if it fails.` : `${doubt}A retry is free.`;
}

function factsOf(job) {
  const image = job.image, side = image && image.width ? `${image.width} × ${image.height}` : "";
  return [job.format.toUpperCase(), side, image && sizeOf(image.bytes), job.priority !== "NORMAL" && `${job.priority.toLowerCase()} priority`, timeOf(job.createdAt)].filter(Boolean).join(" · ");
}

function attemptOf(job) {
  const parts = job.retryCount > 0 || stateOf(job) === "waiting" ? [`attempt ${job.retryCount + (stateOf(job) === "waiting" ? 0 : 1)} of ${job.maxRetries + 1}`] : [];
  if (job.manualRetryCount) parts.push(job.manualRetryCount === 1 ? "retried" : `retried ${job.manualRetryCount} times`);
  return parts.join(" · ");
}

const rows = new Rows($("rows"), $("row"), { prepare, draw });

function prepare(row, item) {
  row.querySelector(".retry").addEventListener("click", () => retry(item()));
  row.querySelector(".thumb").addEventListener("click", () => view(item()));
  row.querySelector(".thumb img").addEventListener("error", (event) => { event.target.hidden = true; }); // it was removed by retention
  row.querySelector(".trail").addEventListener("toggle", () => showTrail(row, item()));
}

function draw(row, job, before) {
  const find = (name) => row.querySelector(name), state = stateOf(job), price = retryPrice(job);
  row.dataset.state = state;
  setText(find(".name"), job.url.replace(/^https?:\/\//, ""));
  find(".name").title = job.url;
  setText(find(".facts"), factsOf(job));
  setText(find(".state"), STATES[state]);
  setText(find(".attempt"), attemptOf(job));
  setText(find(".message"), messageOf(job));
  setText(find(".cost"), costOf(job));
  drawThumb(find(".thumb"), job);
  const download = find(".download"), button = find(".retry");
  download.hidden = !job.imageUrl;
  if (job.imageUrl) {
    download.href = job.imageUrl;
    download.download = `${job.jobId}.${job.format}`;
    download.setAttribute("aria-label", `Download the picture of ${job.url}`);
  }
  button.hidden = price === null;
  button.disabled = price !== null && isShort(price);
  setText(button, price ? `Retry for ${credits(price)}` : "Retry now");
  button.setAttribute("aria-label", `${button.textContent}: ${job.url}`);
  if (job.status !== "QUEUED") positions.delete(job.jobId);
  if (job.completedAt && job.completedAt !== before.completedAt) announce(`${job.url}: ${STATES[state]}. ${messageOf(job)}`);
  if (job.status !== before.status) showTrail(row, job);
}

function drawThumb(thumb, job) {
  const image = thumb.querySelector("img"), isPicture = job.imageUrl && job.format !== "pdf";
  setText(thumb.querySelector(".kind"), isPicture ? "" : job.format.toUpperCase());
  thumb.disabled = !isPicture;
  thumb.setAttribute("aria-label", `Show the picture of ${job.url}`);
  if (!isPicture) image.hidden = true;
  else if (image.dataset.at !== job.completedAt) { // a retried picture has the same address
    image.dataset.at = job.completedAt;
    image.src = job.imageUrl;
    image.hidden = false;
  }
}

function view(job) {
  const viewer = $("viewer"), image = viewer.querySelector("img");
  image.src = job.imageUrl;
  image.alt = `Picture of ${job.url}`;
  viewer.showModal();
}

async function showTrail(row, job) {
  const trail = row.querySelector(".trail");
  if (!trail.open) return;
  try {
    const found = await ask("GET", `/api/v1/screenshots/${job.jobId}/audit`);
    trail.querySelector("ol").replaceChildren(...found.trail.map((one) => element("li", {
      textContent: [timeOf(one.at), ACTIONS[one.action] || one.action, one.by && `by ${one.by}`, one.reason].filter(Boolean).join(" · "),
    })));
  } catch (error) {
    notice(lineOf(error), true);
  }
}

// -- actions --------------------------------------------------------------------------------------------------------
async function retry(job) {
  const button = rows.known.get(job.jobId).element.querySelector(".retry");
  button.disabled = true;
  try {
    const answer = await ask("POST", `/api/v1/screenshots/${job.jobId}/retry`, { requestedBy: "page" });
    positions.set(job.jobId, answer.queuePosition);
    if (rows.known.get(job.jobId)?.item.completedAt === job.completedAt) announce(`${job.url}: queued again, position ${answer.queuePosition}`);
  } catch (error) {
    const { requiredCredits, availableCredits } = error.body || {};
    notice(requiredCredits === undefined ? lineOf(error) : `A retry needs ${credits(requiredCredits)}; ${availableCredits} available.`, true);
  }
  button.disabled = false;
  reload();
}

async function take(url) {
  const [width, height] = $("size").value.split("x").map(Number);
  setText($("refused"), "");
  $("take").disabled = true;
  try {
    const job = await ask("POST", "/api/v1/screenshots", { url, width, height, format: $("format").value, fullPage: $("full").checked });
    $("rows").prepend(rows.put(job.jobId, job));
    $("empty").hidden = true;
    $("url").value = "";
  } catch (error) {
    setText($("refused"), lineOf(error));
  }
  $("take").disabled = false;
  reload();
}

async function load() {
  const [found, current] = await Promise.all([ask("GET", `/api/v1/screenshots?limit=${limit}`), ask("GET", "/session")]);
  account = current.account;
  showAccount();
  rows.show(found.screenshots, (job) => job.jobId);
  $("empty").hidden = found.screenshots.length > 0;
  $("more").hidden = !found.next || limit >= MOST_ROWS;
  const running = found.screenshots.filter((job) => !ENDED.has(stateOf(job))).length;
  setText($("count"), running ? `${running} in progress` : "");
}

// -- the page -------------------------------------------------------------------------------------------------------
for (const address of session.samples) {
  const button = element("button", { className: "link", type: "button", textContent: address.slice(address.lastIndexOf("/") + 1), title: address });
  button.addEventListener("click", () => take(address));
  $("samples").append(" ", button);
}
$("samples").hidden = $("empty-sample").hidden = !session.samples.length;
if (session.caller.role === "viewer") $("ask").hidden = true;
$("ask").addEventListener("submit", (event) => { event.preventDefault(); take($("url").value.trim()); });
$("format").addEventListener("change", showAccount);
$("more").addEventListener("click", () => { limit = Math.min(limit + PAGE_OF_ROWS, MOST_ROWS); reload(); });
showAccount();
const reload = follow(load);
setInterval(() => rows.redraw(), 1000);
