/* SPDX-License-Identifier: Apache-2.0 */
/* base/check.h - bugs, overflow-checked arithmetic, scope guards. */
#ifndef CKB_CHECK_H
#define CKB_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

/* A bug is not an error: it ends the program (the caller's, or ours). */
_Noreturn void ckb_bug(const char *kind, const char *expr, const char *file,
		       int line);
#define CKB_REQUIRE(cond) \
	((cond) ? (void)0 : ckb_bug("requirement", #cond, __FILE__, __LINE__))
#define CKB_INVARIANT(cond) \
	((cond) ? (void)0 : ckb_bug("invariant", #cond, __FILE__, __LINE__))

/* true: the result fits and is in *@out. */
static inline bool ckb_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
	return !__builtin_add_overflow(a, b, out);
}
static inline bool ckb_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
	return !__builtin_mul_overflow(a, b, out);
}
static inline uint64_t ckb_min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}
static inline uint64_t ckb_div_up(uint64_t a, uint64_t b)
{
	return a / b + (a % b != 0);
}

/* Scope guards: CKB_FREE char *p = NULL; ... return CKB_TAKE(p); */
static inline void ckb_free_guard(void *p)
{
	free(*(void **)p);
}
static inline void ckb_fd_guard(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}
#define CKB_CLEANUP(fn) __attribute__((cleanup(fn)))
#define CKB_FREE CKB_CLEANUP(ckb_free_guard)
#define CKB_FD CKB_CLEANUP(ckb_fd_guard)
#define CKB_TAKE(p) \
	({ __typeof__(p) ckb_taken_ = (p); (p) = NULL; ckb_taken_; })
#define CKB_TAKE_FD(fd) ({ int ckb_taken_ = (fd); (fd) = -1; ckb_taken_; })

#define CKB_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define CKB_MUST __attribute__((warn_unused_result))
#define CKB_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

#endif
