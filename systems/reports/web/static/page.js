// The page of the reports: give documents, follow their reports step by step, and read them.
import { $, Problem, Rows, announce, ask, element, follow, lineOf, notice, now, setText, signIn, sizeOf, takeFiles, timeOf, until } from "/common.js";

const PAGE_OF_ROWS = 25, MOST_ROWS = 200, SOON_MS = 1000, WAIT_MS = 5000;
const STATES = { uploading: "Uploading", queued: "Queued", waiting: "Waiting to retry", processing: "In progress", complete: "Ready", failed: "Failed", cancelled: "Cancelled" };
const STEPS = { read: "read", llm: "ask the model", normalise: "tidy up", validate: "check", write: "store" };
const ENDED = new Set(["complete", "failed", "cancelled"]);

const session = await signIn("Use the key that you were given. With make run, open the address that it printed; operators, who may retry, use the key in data/operator.key.");
let limit = PAGE_OF_ROWS, uploads = 0;
const uploading = new Map(); // key → the row of a document that has no report yet

// -- rows -----------------------------------------------------------------------------------------------------------
function stateOf(report) {
  if (report.status === "queued" && report.next_run_at && Date.parse(report.next_run_at) > now()) return "waiting";
  return report.status === "succeeded" ? "complete" : report.status;
}

function messageOf(report) {
  const state = stateOf(report);
  if (state === "complete") return report.report ? "" : "The report was removed by retention.";
  return state === "waiting" ? `${report.message} Next try ${until(report.next_run_at)}.`.trim() : report.message;
}

const nameOf = (report) => report.source.slice(report.source.lastIndexOf("/") + 1) || report.source;

const rows = new Rows($("rows"), $("row"), { prepare, draw });

function prepare(row, item) {
  row.querySelector(".retry").addEventListener("click", () => retry(item(), true));
  row.querySelector(".anew").addEventListener("click", () => retry(item(), false));
  row.querySelector(".contents").addEventListener("toggle", () => showContents(row, item()));
}

function draw(row, report, before) {
  const find = (name) => row.querySelector(name), state = stateOf(report), name = nameOf(report);
  row.dataset.state = state;
  setText(find(".name"), name);
  find(".name").title = report.source;
  setText(find(".facts"), [report.schema, report.size && sizeOf(report.size), report.created_at && timeOf(report.created_at)].filter(Boolean).join(" · "));
  setText(find(".state"), STATES[state] || state);
  setText(find(".attempt"), report.attempt > 1 || state === "waiting" ? `attempt ${report.attempt} of ${report.max_attempts}` : "");
  setText(find(".message"), messageOf(report));
  drawSteps(find(".steps"), report);
  const download = find(".download");
  download.hidden = !report.report;
  if (report.report) {
    download.href = report.report;
    download.download = `${name}.json`;
    download.setAttribute("aria-label", `Download the report of ${name}`);
  }
  for (const action of [".retry", ".anew"]) {
    find(action).hidden = !(session.can_retry && report.is_retryable);
    find(action).setAttribute("aria-label", `${find(action).textContent}: ${name}`);
  }
  const contents = find(".contents"), what = report.report ? "Show the report" : report.error_code ? "What went wrong" : "";
  contents.hidden = !what;
  setText(contents.querySelector("summary"), what);
  if (report.status !== before.status) contents.open = false;
  if (report.finished_at && report.finished_at !== before.finished_at) announce(`${name}: ${STATES[state]}. ${messageOf(report)}`);
}

// Shows which step runs, and which are done. A report that waits for its next try goes on after its last recorded step.
function drawSteps(list, report) {
  const at = session.steps.indexOf(report.step), isRunning = stateOf(report) === "processing";
  if (list.children.length !== (isRunning ? session.steps.length : 0)) {
    list.replaceChildren(...(isRunning ? session.steps : []).map((step) => element("li", { textContent: STEPS[step] || step })));
  }
  [...list.children].forEach((line, place) => {
    line.className = place < at ? "done" : place === at ? "now" : "";
    line.ariaCurrent = place === at ? "step" : null;
  });
}

async function showContents(row, report) {
  const contents = row.querySelector(".contents");
  if (!contents.open) return;
  try {
    const found = report.report ? await ask("GET", report.report) : await ask("GET", `/reports/${report.id}`);
    contents.querySelector(".data").replaceChildren(report.report ? valueOf(found) : failureOf(found));
  } catch (error) {
    notice(lineOf(error), true);
  }
}

function failureOf(report) {
  const shown = element("div", {}, element("p", {}, "Code: ", element("code", { textContent: report.error_code })));
  if (report.errors.length) {
    shown.append(element("h3", { textContent: "What did not fit" }), element("ul", {}, ...report.errors.map((one) =>
      element("li", {}, ...(one.path ? [element("code", { textContent: one.path }), " "] : []), one.message))));
  }
  if (!session.can_retry) shown.append(element("p", { className: "quiet", textContent: "An operator can retry this report." }));
  return shown;
}

// Returns a value of a report as a table, a list, or text.
function valueOf(value) {
  if (Array.isArray(value)) return value.length && value.every(isRecord) ? tableOf(value) : element("ul", {}, ...value.map((one) => element("li", {}, valueOf(one))));
  if (isRecord(value)) {
    return element("table", {}, element("tbody", {}, ...Object.entries(value).map(([name, one]) =>
      element("tr", {}, element("th", { scope: "row", textContent: name.replaceAll("_", " ") }), element("td", {}, valueOf(one))))));
  }
  return document.createTextNode(value === null ? "–" : String(value));
}

const isRecord = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

function tableOf(records) {
  const names = [...new Set(records.flatMap(Object.keys))], kind = (value) => (typeof value === "number" ? "number" : "");
  return element("table", {},
    element("thead", {}, element("tr", {}, ...names.map((name) => element("th", { scope: "col", className: kind(records[0][name]), textContent: name.replaceAll("_", " ") })))),
    element("tbody", {}, ...records.map((record) => element("tr", {}, ...names.map((name) => element("td", { className: kind(record[name]) }, valueOf(record[name] ?? null)))))));
}

// -- actions --------------------------------------------------------------------------------------------------------
async function retry(report, keepAnswer) {
  const buttons = rows.known.get(report.id).element.querySelectorAll("button");
  buttons.forEach((button) => { button.disabled = true; });
  try {
    await ask("POST", `/reports/${report.id}/retry`, { keep_answer: keepAnswer });
    if (rows.known.get(report.id)?.item.finished_at === report.finished_at) announce(`${nameOf(report)}: queued again`); // unless it has ended since
  } catch (error) {
    notice(`${nameOf(report)}: ${lineOf(error)}`, true);
  }
  buttons.forEach((button) => { button.disabled = false; });
  reload();
}

// Uploads documents one after the other, and requests a report of each.
async function give(files) {
  const waiting = files.map((file) => {
    const key = `upload-${++uploads}`, row = { id: key, source: file.name, schema: $("schema").value, size: file.size, status: "uploading", message: "", attempt: 0 };
    uploading.set(key, row);
    $("rows").prepend(rows.put(key, row));
    return { key, row, file };
  });
  $("empty").hidden = true;
  for (const { key, row, file } of waiting) {
    try {
      if (file.size > session.max_bytes) throw new Problem(413, { detail: `A document has at most ${sizeOf(session.max_bytes)}.` });
      const { source } = await upload(file);
      await request(source);
      uploading.delete(key);
      rows.remove(key);
    } catch (error) {
      uploading.set(key, { ...row, status: "failed", message: lineOf(error) });
      rows.put(key, uploading.get(key));
    }
    reload();
  }
}

// The server limits the rate of documents; sends this one again after the pause that it asked for.
async function upload(file) {
  for (;;) {
    try {
      return await ask("POST", `/documents?name=${encodeURIComponent(file.name)}`, file);
    } catch (error) {
      if (error.status !== 429) throw error;
      await new Promise((done) => setTimeout(done, WAIT_MS));
    }
  }
}

async function request(source) {
  const report = await ask("POST", "/reports", { source, schema: $("schema").value, instructions: $("instructions").value });
  $("rows").prepend(rows.put(report.id, report));
}

async function load() {
  const found = await ask("GET", `/reports?limit=${limit}`);
  rows.show([...uploading.values()].reverse().concat(found.reports), (report) => report.id);
  $("empty").hidden = rows.known.size > 0;
  $("more").hidden = !found.next || limit >= MOST_ROWS;
  const running = found.reports.filter((report) => !ENDED.has(stateOf(report))).length;
  setText($("count"), running ? `${running} in progress` : "");
  return found.reports.some((report) => report.status === "processing") ? SOON_MS : 0; // steps are no events
}

// -- the page -------------------------------------------------------------------------------------------------------
$("schema").append(...session.schemas.map((name) => element("option", { value: name, textContent: name })));
if (session.schemas.includes("invoice")) $("schema").value = "invoice";
setText($("limits"), `text up to ${sizeOf(session.max_bytes)} each`);
$("file").accept = session.extensions.join(",");
takeFiles($("file"), give);
for (const name of session.samples) {
  const button = element("button", { className: "link", type: "button", textContent: name.replace(/\.txt$/, "").replace("-", " ") });
  button.addEventListener("click", async () => {
    const answer = await fetch(`/samples/${name}`).catch(() => null);
    if (answer?.ok) give([new File([await answer.blob()], name)]);
    else notice("The sample cannot be loaded. Try again in a moment.", true);
  });
  $("samples").append(" ", button);
}
$("ask").hidden = session.caller.role === "viewer";
$("ask").addEventListener("submit", async (event) => {
  event.preventDefault();
  const source = $("source").value.trim();
  if (!source) return;
  try {
    await request(source);
    $("source").value = "";
  } catch (error) {
    notice(lineOf(error), true);
  }
  reload();
});
$("more").addEventListener("click", () => { limit = Math.min(limit + PAGE_OF_ROWS, MOST_ROWS); reload(); });
const reload = follow(load);
setInterval(() => rows.redraw(), 1000);
