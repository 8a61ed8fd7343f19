/** The dashboard's HTTP API. */

export class ApiError extends Error {
  /** @param {string} message @param {string} code @param {number} status 0 = no answer at all */
  constructor(message, code, status) {
    super(message);
    this.code = code;
    this.status = status;
  }
}

/**
 * @param {string} path after `/api/v1/`
 * @param {URLSearchParams | null} [query]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function get(path, query = null, signal) {
  const address = `/api/v1/${path}${query && [...query].length ? `?${query}` : ""}`;
  let answer;
  try {
    answer = await fetch(address, { signal, credentials: "same-origin", headers: { accept: "application/json" } });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError("The dashboard's server does not answer.", "unreachable", 0);
  }
  let body = null;
  try {
    body = await answer.json();
  } catch (error) {
    if (signal?.aborted) throw error;
    if (answer.ok) throw new ApiError("The server's answer is no JSON.", "bad-answer", answer.status);
  }
  if (!answer.ok) {
    const said = body?.error ?? {};
    throw new ApiError(String(said.message ?? `The server answers ${answer.status}.`), String(said.code ?? ""), answer.status);
  }
  return body;
}
