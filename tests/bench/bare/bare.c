#include <microhttpd.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

/* The least that libmicrohttpd can do with a request: the measure of what
 * attnd adds to it. Prints its port, serves until its input ends. */

static enum MHD_Result answer(void *cls, struct MHD_Connection *connection,
                              const char *url, const char *method,
                              const char *version, const char *upload,
                              size_t *upload_len, void **context)
{
    (void)cls, (void)url, (void)method, (void)version;
    (void)upload, (void)upload_len;
    if (*context == NULL) {
        *context = connection;
        return MHD_YES;
    }

    struct MHD_Response *response = MHD_create_response_from_buffer(
        3, (void *)(uintptr_t) "ok\n", MHD_RESPMEM_PERSISTENT);
    enum MHD_Result sent = MHD_queue_response(connection, 200, response);

    MHD_destroy_response(response);
    return sent;
}

int main(void)
{
    struct MHD_Daemon *daemon =
        MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD, 0, NULL, NULL, answer,
                         NULL, MHD_OPTION_CONNECTION_LIMIT, 1000u,
                         MHD_OPTION_END);
    const union MHD_DaemonInfo *port =
        daemon == NULL ? NULL
                       : MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT);
    char ignored;

    if (port == NULL)
        return 1;
    printf("%u\n", (unsigned)port->port);
    fflush(stdout);
    while (read(0, &ignored, 1) > 0)
        ;
    MHD_stop_daemon(daemon);
    return 0;
}
