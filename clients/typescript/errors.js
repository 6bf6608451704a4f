/** The base class of all errors of the client. */
export class ClientError extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** There was no response. It is not known whether the request was carried out. */
export class Unreachable extends ClientError {}

/** The response is not one of this API: it is of a proxy, another program, or a much newer server. */
export class BadAnswer extends ClientError {}

/** The API refused the request (RFC 9457). `code` is stable, `detail` is for people. */
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

/** Returns the error for a response that is not a success. */
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
    // A proxy's own response, which means the same.
    const code = status === 429 ? "RATE_LIMITED" : "UNAVAILABLE";
    const detail = "a proxy in front of the server refused for now; send it again later";
    return new Problem({ status, code, detail }, retryAfter);
  }
  if (status === 502 || status === 504) {
    return new Unreachable(`a proxy answered ${status}: it could not reach the server; send it again later`);
  }
  return new BadAnswer(`the response is ${status} ${media || "without a type"}, which is not one of Holdfast's API; check the URL`);
}

export function mediaOf(response) {
  return (response.headers.get("content-type") ?? "").split(";")[0].trim().toLowerCase();
}

/** Returns `Retry-After` in seconds. A date is ignored, because clocks differ. */
function secondsOf(response) {
  const text = response.headers.get("retry-after") ?? "";
  return /^\d{1,9}$/.test(text) ? Number(text) : undefined;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
