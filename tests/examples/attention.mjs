// Posts three tokens to attnd and prints what each of them attended to.
//
// usage: node attention.mjs [URL]        Node 18 or later, no packages
//
// The function runs in browsers as it is. attnd sends no CORS headers: serve
// the page and attnd from one origin, by a proxy.

/** The response; a refusal throws an Error with its reason. */
export async function attention(url, request) {
  const reply = await fetch(`${url}/attention`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(request),
  });
  const body = await reply.json();
  if (!reply.ok) throw new Error(`${body.pointer}: ${body.detail}`);
  return body;
}

if (typeof process !== "undefined") {
  const url = process.argv[2] ?? "http://127.0.0.1:8080";
  const reply = await attention(url, {
    query: [[1, 0, 0, 1], [0, 2, 1, 0], [1, 1, 0, 2]],
    num_heads: 2,
    is_causal: true,
  });
  console.log("output", JSON.stringify(reply.output));
  console.log("weights", JSON.stringify(reply.weights));
}
