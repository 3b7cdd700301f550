#include "tests/e2e/client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <curl/curl.h>

enum { FIRST_BYTES = 4096 };
enum { TIMEOUT_S = 120 }; /* generous: sanitizers on a busy machine */

static size_t append(char *data, size_t size, size_t count, void *into)
{
    struct reply *reply = into;
    size_t len = size * count;

    while (reply->len + len + 1 > reply->size) {
        reply->size *= 2;
        reply->body = realloc(reply->body, reply->size);
        if (reply->body == NULL)
            return 0;
    }
    memcpy(reply->body + reply->len, data, len);
    reply->len += len;
    reply->body[reply->len] = '\0';
    return len;
}

static void transfer(CURL *curl, uint16_t port, const char *path,
                     struct reply *reply)
{
    size_t size = strlen(path) + 64;
    char *url = malloc(size), *type = NULL;

    *reply = (struct reply){ .body = calloc(1, FIRST_BYTES),
                             .size = FIRST_BYTES };
    snprintf(url, size, "http://127.0.0.1:%u%s", (unsigned)port, path);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)TIMEOUT_S);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, append);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, reply);

    CURLcode code = curl_easy_perform(curl);

    if (code != CURLE_OK)
        fail_msg("%.200s: %s", url, curl_easy_strerror(code));
    free(url);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &reply->status);
    curl_easy_getinfo(curl, CURLINFO_CONTENT_TYPE, &type);
    snprintf(reply->content_type, sizeof reply->content_type, "%s",
             type == NULL ? "" : type);
}

static struct curl_slist *add_header(struct curl_slist *headers,
                                     const char *name, const char *value)
{
    char line[128];

    snprintf(line, sizeof line, "%s: %s", name, value);
    return curl_slist_append(headers, line);
}

void client_send(uint16_t port, const char *path, const char *content_type,
                 const char *accept, const void *body, size_t len,
                 struct reply *reply)
{
    CURL *curl = curl_easy_init();
    struct curl_slist *headers = curl_slist_append(NULL, "Expect:");

    headers = add_header(headers, "Content-Type", content_type);
    if (accept != NULL)
        headers = add_header(headers, "Accept", accept);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)len);
    transfer(curl, port, path, reply);
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
}

void client_post(uint16_t port, const char *path, const char *body, size_t len,
                 struct reply *reply)
{
    client_send(port, path, "application/json", NULL, body, len, reply);
}

void client_get(uint16_t port, const char *path, struct reply *reply)
{
    CURL *curl = curl_easy_init();

    transfer(curl, port, path, reply);
    curl_easy_cleanup(curl);
}
