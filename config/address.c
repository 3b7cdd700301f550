#include "config/address.h"

#include <arpa/inet.h>
#include <string.h>

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"

static bool only(const char *text, const char *set)
{
    return *text != '\0' && text[strspn(text, set)] == '\0';
}

static bool parse_port(const char *text, uint16_t *port)
{
    unsigned value = 0;

    if (!only(text, DIGITS) || strlen(text) > 5)
        return false;
    for (; *text != '\0'; text++)
        value = value * 10 + (unsigned)(*text - '0');
    *port = (uint16_t)value;
    return value <= UINT16_MAX;
}

static bool is_ipv6(const char *host)
{
    char number[INET6_ADDRSTRLEN];
    size_t len = strcspn(host, "%");
    struct in6_addr parsed;

    if (len >= sizeof number)
        return false;
    memcpy(number, host, len);
    number[len] = '\0';
    return inet_pton(AF_INET6, number, &parsed) == 1 &&
           (host[len] == '\0' || only(host + len + 1, LETTERS DIGITS ".-_"));
}

/* Digits and dots alone are an IPv4 address, in full, or a slip of the hand. */
static bool is_name_or_ipv4(const char *host)
{
    struct in_addr parsed;

    if (only(host, DIGITS "."))
        return inet_pton(AF_INET, host, &parsed) == 1;
    return only(host, LETTERS DIGITS ".-_") && host[0] != '-' && host[0] != '.';
}

bool address_parse(const char *text, struct address *out)
{
    const char *colon = strrchr(text, ':');
    struct address address = { 0 };

    if (colon == NULL || !parse_port(colon + 1, &address.port))
        return false;

    size_t len = (size_t)(colon - text);
    bool bracketed = len >= 2 && text[0] == '[' && text[len - 1] == ']';

    if (bracketed) {
        text++;
        len -= 2;
    }
    if (len >= sizeof address.host)
        return false;
    memcpy(address.host, text, len);
    if (bracketed ? !is_ipv6(address.host) : !is_name_or_ipv4(address.host))
        return false;
    *out = address;
    return true;
}
