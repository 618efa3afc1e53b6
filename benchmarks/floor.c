/* The least a server can do for a request: the floor that benchmarks measure tidelog against.
 *
 *   floor write FILE BYTES              read a frame, append it to FILE, answer BYTES bytes
 *   floor read FILE BYTES               read a frame, answer the first BYTES bytes of FILE
 *   floor copy FILE BYTES PORT PORT     as write, but send the frame to the floors that write at
 *                                       these ports as well, and answer when they have answered
 *
 * A frame is four bytes of length in network order and that many bytes. One connection at a time,
 * blocking calls only, no protocol: every instruction beyond these is a broker's own work. Prints
 * the port it listens on and runs until it is killed.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FRAME_BYTES_MAX = 128 << 20, COPIES_MAX = 2 };

static int copies[COPIES_MAX], copy_count = 0;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static int read_fully(int socket_fd, char *target, size_t size) {
    while (size > 0) {
        ssize_t got = recv(socket_fd, target, size, 0);
        if (got <= 0) return 0;
        target += got;
        size -= (size_t)got;
    }
    return 1;
}

static int send_fully(int socket_fd, uint32_t size, char *body) {
    uint32_t length = htonl(size);
    struct iovec parts[2] = {{&length, sizeof length}, {body, size}};
    ssize_t sent = writev(socket_fd, parts, 2);
    if (sent < (ssize_t)sizeof length) return 0;
    size_t done = (size_t)sent - sizeof length;
    while (done < size) {
        sent = send(socket_fd, body + done, size - done, MSG_NOSIGNAL);
        if (sent <= 0) return 0;
        done += (size_t)sent;
    }
    return 1;
}

/* To all of them first, so that they work at the same time. */
static void copy(char *frame, uint32_t length, char *answer, uint32_t size) {
    uint32_t answered;
    for (int i = 0; i < copy_count; i++)
        if (!send_fully(copies[i], length, frame)) fail("copy");
    for (int i = 0; i < copy_count; i++) {
        if (!read_fully(copies[i], (char *)&answered, sizeof answered)) fail("answer");
        if (ntohl(answered) != size || !read_fully(copies[i], answer, size)) fail("answer");
    }
}

static void serve(int socket_fd, int file_fd, int writes, char *frame, char *answer, uint32_t size) {
    uint32_t length;
    while (read_fully(socket_fd, (char *)&length, sizeof length)) {
        length = ntohl(length);
        if (length > FRAME_BYTES_MAX || !read_fully(socket_fd, frame, length)) return;
        if (writes) {
            if (write(file_fd, frame, length) != (ssize_t)length) fail("write");
            copy(frame, length, answer, size);
        } else {
            if (pread(file_fd, answer, size, 0) != (ssize_t)size) fail("pread");
        }
        if (!send_fully(socket_fd, size, answer)) return;
    }
}

static int listen_on_any_port(void) {
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) < 0) fail("bind");
    if (listen(listener, 16) < 0) fail("listen");
    if (getsockname(listener, (struct sockaddr *)&address, &size) < 0) fail("getsockname");
    printf("listening on 127.0.0.1:%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return listener;
}

static void connect_to(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int socket_fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    address.sin_port = htons((uint16_t)port);
    if (socket_fd < 0 || connect(socket_fd, (struct sockaddr *)&address, sizeof address) < 0)
        fail("connect");
    setsockopt(socket_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    copies[copy_count++] = socket_fd;
}

int main(int count, char **arguments) {
    if (count < 4 || count > 4 + COPIES_MAX) {
        fprintf(stderr, "usage: floor write|read|copy FILE BYTES [PORT PORT]\n");
        return 2;
    }
    int writes = strcmp(arguments[1], "read") != 0;
    for (int i = 4; i < count; i++) connect_to(atoi(arguments[i]));
    int file_fd = open(arguments[2], writes ? O_WRONLY | O_CREAT | O_APPEND : O_RDONLY, 0644);
    if (file_fd < 0) fail("open");
    uint32_t size = (uint32_t)strtoul(arguments[3], NULL, 10);
    char *frame = malloc(FRAME_BYTES_MAX), *answer = calloc(1, size);
    if (frame == NULL || answer == NULL) fail("malloc");
    int listener = listen_on_any_port(), on = 1;
    for (;;) {
        int socket_fd = accept(listener, NULL, NULL);
        if (socket_fd < 0) fail("accept");
        setsockopt(socket_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        serve(socket_fd, file_fd, writes, frame, answer, size);
        close(socket_fd);
    }
}
