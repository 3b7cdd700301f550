#!/usr/bin/env python3
"""Posts three tokens to attnd and prints what each of them attended to.

usage: attention.py [URL]        Python 3.8 or later, standard library only
"""
import json
import sys
import urllib.error
import urllib.request


def attention(url, **request):
    """The response as a dict; a refusal raises ValueError with its reason."""
    post = urllib.request.Request(
        url + "/attention",
        json.dumps(request).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(post, timeout=60) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as refusal:
        problem = json.load(refusal)
        raise ValueError(f"{problem['pointer']}: {problem['detail']}") from None


if __name__ == "__main__":
    reply = attention(
        sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080",
        query=[[1, 0, 0, 1], [0, 2, 1, 0], [1, 1, 0, 2]],
        num_heads=2,
        is_causal=True,
    )
    print("output", reply["output"])
    print("weights", reply["weights"])
