/* As much of an HTTP/2 client as a gRPC call needs: one call for each connection, literal headers, no flow control but
 * the widest windows.  SPDX-License-Identifier: MIT */
#ifndef BENCH_HTTP2_H
#define BENCH_HTTP2_H
#include "common.h"

enum { H2_DATA = 0, H2_HEADERS = 1, H2_RESET = 3, H2_SETTINGS = 4, H2_PING = 6, H2_GOAWAY = 7, H2_WINDOW = 8 };
enum { H2_END_STREAM = 1, H2_ACK = 1, H2_END_HEADERS = 4 };
#define H2_HEAD 9

static inline void h2_frame(buf *o, size_t n, int type, int flags, uint32_t stream) {
  uint8_t h[H2_HEAD] = {(uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n, (uint8_t)type, (uint8_t)flags,
                        (uint8_t)(stream >> 24), (uint8_t)(stream >> 16), (uint8_t)(stream >> 8), (uint8_t)stream};
  b_add(o, h, sizeof h);
}
/* HPACK: literals without Huffman, names and all */
static inline void h2_text(buf *o, const char *s, size_t n) {
  size_t k = n; uint8_t first = (uint8_t)(k < 127 ? k : 127); b_add(o, &first, 1);
  if (k >= 127) for (k -= 127;; k >>= 7) { uint8_t b = (uint8_t)((k & 127) | (k > 127 ? 128 : 0)); b_add(o, &b, 1); if (k < 128) break; }
  b_add(o, s, n);
}
static inline void h2_literal(buf *o, const char *name, size_t name_n, const char *value, size_t n) {
  uint8_t zero = 0; b_add(o, &zero, 1); h2_text(o, name, name_n); h2_text(o, value, n);
}
/* One unary-request call of `message`; `headers` are lines as in HTTP/1.1. */
static inline void grpc_call(buf *o, const char *path, const char *authority, const char *headers, const char *message, size_t n) {
  static const uint8_t widest[6] = {0, 4, 0x7f, 0xff, 0xff, 0xff}, more[4] = {0x7f, 0xfe, 0, 0};
  b_str(o, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  h2_frame(o, sizeof widest, H2_SETTINGS, 0, 0); b_add(o, widest, sizeof widest);
  h2_frame(o, sizeof more, H2_WINDOW, 0, 0); b_add(o, more, sizeof more);
  buf h = {0};
  h2_literal(&h, ":method", 7, "POST", 4); h2_literal(&h, ":scheme", 7, "http", 4);
  h2_literal(&h, ":path", 5, path, strlen(path)); h2_literal(&h, ":authority", 10, authority, strlen(authority));
  h2_literal(&h, "te", 2, "trailers", 8); h2_literal(&h, "content-type", 12, "application/grpc", 16);
  for (const char *l = headers; *l;) {
    const char *e = strstr(l, "\r\n"), *colon = strchr(l, ':'); if (!e || !colon || colon > e) break;
    const char *v = colon + 1; while (*v == ' ') v++;
    h2_literal(&h, l, (size_t)(colon - l), v, (size_t)(e - v)); l = e + 2;
  }
  h2_frame(o, h.n, H2_HEADERS, H2_END_HEADERS, 1); b_add(o, h.p, h.n); b_free(&h);
  uint8_t prefix[5] = {0, (uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n};
  h2_frame(o, n + sizeof prefix, H2_DATA, H2_END_STREAM, 1); b_add(o, prefix, sizeof prefix); b_add(o, message, n);
}
#endif
