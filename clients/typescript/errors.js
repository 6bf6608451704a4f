/** Whatever goes wrong between a client and what it asked for. */
export class ClientError extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** No answer came. Whether the request was carried out is not known, unless it is one that only looks. */
export class Unreachable extends ClientError {}

/** What came back is not an answer of this API: a proxy, another program, or a much newer server. */
export class BadAnswer extends ClientError {}

/** The API refused, and says why (RFC 9457). `code` is stable, `detail` is for people. */
export class Problem extends ClientError {
  constructor(facts, retryAfter) {
    super(`${facts.code}: ${facts.detail ?? facts.title ?? ""}`);
    this.status = facts.status;
    this.code = facts.code;
    this.detail = facts.detail ?? facts.title ?? "";
    this.instance = facts.instance ?? "";
    this.errors = facts.errors ?? [];
    this.facts = facts;
    this.retryAfter = retryAfter;
  }
}

/** The error that an answer tells of. */
export async function refusal(response) {
  const media = mediaOf(response);
  const status = response.status;
  const retryAfter = secondsOf(response);
  const text = await response.text().catch(() => "");
  if (media === "application/problem+json") {
    const facts = parsed(text);
    if (typeof facts?.code === "string") {
      return new Problem({ ...facts, status }, retryAfter);
    }
  }
  if (status === 429 || status === 503) {
    // A proxy's own word, and it means the same.
    const code = status === 429 ? "RATE_LIMITED" : "UNAVAILABLE";
    const detail = "something in front of the server refused for now; send it again later";
    return new Problem({ status, code, detail }, retryAfter);
  }
  if (status === 502 || status === 504) {
    return new Unreachable(`a proxy answered ${status}: it could not reach the server; send it again later`);
  }
  return new BadAnswer(`the answer is ${status} ${media || "without a type"}, not one of Holdfast's; check the URL`);
}

export function mediaOf(response) {
  return (response.headers.get("content-type") ?? "").split(";")[0].trim().toLowerCase();
}

/** `Retry-After` in seconds; its other form, a date, is read as if it were missing: clocks differ. */
function secondsOf(response) {
  const given = response.headers.get("retry-after") ?? "";
  return /^\d{1,9}$/.test(given) ? Number(given) : undefined;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
