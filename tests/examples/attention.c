/* Posts three tokens to attnd and prints the response, or why there is none.
 *
 * usage: attention [URL]
 * build: cc attention.c -lcurl -o attention */

#include <curl/curl.h>

#include <stdio.h>

static const char request[] =
    "{\"query\": [[1, 0, 0, 1], [0, 2, 1, 0], [1, 1, 0, 2]],"
    " \"num_heads\": 2, \"is_causal\": true}";

/* Returns the HTTP status, or 0 when no answer came. The body goes to stdout:
 * libcurl writes it there unless it is given a function. */
static long post_attention(CURL *curl, const char *base)
{
    char url[512];
    long status = 0;
    struct curl_slist *headers =
        curl_slist_append(NULL, "Content-Type: application/json");

    snprintf(url, sizeof url, "%s/attention", base);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, 60L);

    CURLcode result = curl_easy_perform(curl);

    if (result != CURLE_OK)
        fprintf(stderr, "attention: %s\n", curl_easy_strerror(result));
    else
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_slist_free_all(headers);
    return status;
}

int main(int argc, char **argv)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);

    CURL *curl = curl_easy_init();
    long status = 0;

    if (curl != NULL)
        status = post_attention(curl, argc > 1 ? argv[1]
                                               : "http://127.0.0.1:8080");
    putchar('\n');
    curl_easy_cleanup(curl);
    curl_global_cleanup();
    return status == 200 ? 0 : 1;
}
