/* SPDX-License-Identifier: Apache-2.0 */
/*
 * support/sanitized.h - is this built with a sanitizer that is slow, and takes
 * memory of its own?
 */
#ifndef TEST_SANITIZED_H
#define TEST_SANITIZED_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#endif
