/* SPDX-License-Identifier: Apache-2.0 */
/* test_sys.c - the real table does what its header says, call by call. */
#include "unit/base/sys_fixture.h"

#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/time.h>
#include <time.h>

#define OS ckb_sys_real()

static void every_entry_is_there(void **state)
{
	const struct ckb_sys *sys = OS;

	(void)state;
	for (size_t i = 0; i < sizeof(*sys) / sizeof(void (*)(void)); i++)
		assert_non_null(((void *const *)sys)[i]);
}

static void failures_come_as_negative_errnos(void **state)
{
	struct fix *fix = *state;
	struct stat st;
	uint64_t magic;
	char c = 0;

	assert_int_equal(OS->close(OS, -1), -EBADF);
	assert_int_equal(OS->pread(OS, -1, &c, 1, 0), -EBADF);
	assert_int_equal(OS->pwrite(OS, -1, &c, 1, 0), -EBADF);
	assert_int_equal(OS->pread(OS, fix->fd, &c, 1, UINT64_MAX), -EINVAL);
	assert_int_equal(OS->fsync(OS, -1), -EBADF);
	assert_int_equal(OS->fdatasync(OS, -1), -EBADF);
	assert_int_equal(OS->sync_range(OS, -1, 0, 1), -EBADF);
	assert_int_equal(OS->fallocate(OS, -1, 0, 1), -EBADF);
	assert_int_equal(OS->ftruncate(OS, -1, 0), -EBADF);
	assert_int_equal(OS->fstat(OS, -1, &st), -EBADF);
	assert_int_equal(OS->flock(OS, -1, LOCK_SH), -EBADF);
	assert_int_equal(OS->fs_magic(OS, -1, &magic), -EBADF);
	fix_put(fix, "f", "", 0);
	fix_put(fix, "g", "", 0);
	assert_int_equal(OS->openat(OS, fix->fd, "x", O_RDONLY, 0), -ENOENT);
	assert_int_equal(OS->openat(OS, fix->fd, "f", O_CREAT | O_EXCL, 0),
			 -EEXIST);
	assert_int_equal(OS->mkdirat(OS, fix->fd, "f", 0777), -EEXIST);
	assert_int_equal(OS->linkat(OS, fix->fd, "f", fix->fd, "g"), -EEXIST);
	assert_int_equal(OS->renameat(OS, fix->fd, "x", fix->fd, "g"),
			 -ENOENT);
	assert_int_equal(OS->unlinkat(OS, fix->fd, "x", 0), -ENOENT);
	assert_int_equal(OS->fstatat(OS, fix->fd, "x", &st), -ENOENT);
}

static void bytes_go_where_they_are_told(void **state)
{
	struct fix *fix = *state;
	uint64_t far = 5 * (uint64_t)GIB + 3; /* beyond 32 bits */
	int fd = OS->openat(OS, fix->fd, "f", O_RDWR | O_CREAT, 0600);
	struct stat st;
	char have[4] = "";

	assert_true(fd >= 0);
	assert_int_equal(OS->pwrite(OS, fd, "abc", 3, far), 3);
	assert_int_equal(OS->pread(OS, fd, have, 4, far), 3); /* short */
	assert_string_equal(have, "abc");
	assert_int_equal(OS->pread(OS, fd, have, 4, far + 3), 0);
	assert_int_equal(OS->sync_range(OS, fd, far, 3), 0);
	assert_int_equal(OS->fsync(OS, fd), 0);
	assert_int_equal(OS->fdatasync(OS, fd), 0);
	assert_int_equal(OS->fstat(OS, fd, &st), 0);
	assert_int_equal(st.st_size, far + 3);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(OS->ftruncate(OS, fd, far + 1), 0);
	assert_int_equal(OS->fstat(OS, fd, &st), 0);
	assert_int_equal(st.st_size, far + 1);
	assert_int_equal(OS->ftruncate(OS, fd, 1), 0);
	int rc = OS->fallocate(OS, fd, 4096, 8192);

	assert_true(rc == 0 || rc == -EOPNOTSUPP);
	assert_int_equal(OS->fstat(OS, fd, &st), 0);
	assert_int_equal(st.st_size, rc == 0 ? 4096 + 8192 : 1);
	assert_int_equal(OS->close(OS, fd), 0);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
}

static void names_are_linked_renamed_and_removed(void **state)
{
	struct fix *fix = *state;
	struct stat st;

	fix_put(fix, "f", "one", 3);
	fix_put(fix, "g", "other", 5);
	assert_int_equal(OS->mkdirat(OS, fix->fd, "d", 0700), 0);
	int d = OS->openat(OS, fix->fd, "d", O_RDONLY | O_DIRECTORY, 0);

	assert_int_equal(OS->linkat(OS, fix->fd, "f", d, "f"), 0);
	assert_int_equal(OS->fstatat(OS, d, "f", &st), 0);
	assert_int_equal(st.st_nlink, 2);
	assert_int_equal(OS->renameat(OS, d, "f", fix->fd, "h"), 0);
	assert_int_equal(OS->renameat(OS, fix->fd, "g", fix->fd, "h"), 0);
	fix_holds(fix, "h", "other", 5);
	assert_int_equal(OS->unlinkat(OS, fix->fd, "d", 0), -EISDIR);
	assert_int_equal(OS->unlinkat(OS, fix->fd, "d", AT_REMOVEDIR), 0);
	assert_int_equal(OS->unlinkat(OS, fix->fd, "f", 0), 0);
	assert_int_equal(fix_count(fix->fd, "."), 1);
	OS->close(OS, d);
}

static void links_are_not_followed(void **state)
{
	struct fix *fix = *state;
	struct stat st;

	fix_put(fix, "f", "12345", 5);
	assert_int_equal(symlinkat("f", fix->fd, "link"), 0);
	assert_int_equal(OS->fstatat(OS, fix->fd, "link", &st), 0);
	assert_true(S_ISLNK(st.st_mode));
	assert_int_equal(OS->linkat(OS, fix->fd, "link", fix->fd, "hard"), 0);
	assert_int_equal(OS->fstatat(OS, fix->fd, "hard", &st), 0);
	assert_true(S_ISLNK(st.st_mode));
}

static void descriptors_are_closed_on_exec(void **state)
{
	struct fix *fix = *state;
	static const int flags[] = { O_RDONLY, O_RDWR | O_CREAT, O_PATH };

	fix_put(fix, "f", "", 0);
	for (size_t i = 0; i < CKB_ARRAY_LEN(flags); i++) {
		int fd = OS->openat(OS, fix->fd, "f", flags[i], 0666);

		assert_true(fd >= 0);
		assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
		OS->close(OS, fd);
	}
}

struct seen {
	int count, stop_at, stop_rc;
	unsigned bits;
	char long_name[NAME_MAX + 1];
};

static const char *const listed[] = { "f", "d", "link", "..x", ".hidden" };

static int see(void *ctx, const char *name, unsigned char type)
{
	struct seen *s = ctx;

	(void)type;
	for (size_t i = 0; i < CKB_ARRAY_LEN(listed); i++)
		s->bits |= (unsigned)!strcmp(name, listed[i]) << i;
	if (strlen(name) > 100)
		snprintf(s->long_name, sizeof(s->long_name), "%s", name);
	return ++s->count == s->stop_at ? s->stop_rc : 0;
}

static void a_list_has_every_name_once_and_no_dots(void **state)
{
	struct fix *fix = *state;
	struct seen s = { 0 };
	char name[NAME_MAX + 2];

	memset(name, 'n', sizeof(name));
	name[NAME_MAX + 1] = '\0';
	assert_int_equal(OS->mkdirat(OS, fix->fd, name, 0777), -ENAMETOOLONG);
	name[NAME_MAX] = '\0';
	fix_put(fix, name, "", 0);
	fix_put(fix, "f", "", 0);
	fix_put(fix, "..x", "", 0);
	fix_put(fix, ".hidden", "", 0);
	assert_int_equal(mkdirat(fix->fd, "d", 0777), 0);
	assert_int_equal(symlinkat("f", fix->fd, "link"), 0);
	assert_int_equal(OS->list(OS, fix->fd, ".", see, &s), 0);
	assert_int_equal(s.count, 6);
	assert_int_equal(s.bits, 31);
	assert_string_equal(s.long_name, name);
	assert_int_equal(fix_count(fix->fd, "d"), 0);
	assert_int_equal(fix_count(fix->fd, "."), 6); /* from the start again */
}

static void a_list_stops_when_told_and_leaves_no_descriptor(void **state)
{
	struct fix *fix = *state;
	int fds = fix_count(AT_FDCWD, "/proc/self/fd");

	fix_put(fix, "f", "", 0);
	fix_put(fix, "g", "", 0);
	fix_put(fix, "h", "", 0);
	for (int rc = -3; rc <= 3; rc += 6) {
		struct seen s = { .stop_at = 2, .stop_rc = rc };

		assert_int_equal(OS->list(OS, fix->fd, ".", see, &s), rc);
		assert_int_equal(s.count, 2);
	}
	struct seen s = { 0 };

	assert_int_equal(OS->list(OS, fix->fd, "x", see, &s), -ENOENT);
	assert_int_equal(OS->list(OS, fix->fd, "f", see, &s), -ENOTDIR);
	assert_int_equal(s.count, 0);
	assert_int_equal(fix_count(AT_FDCWD, "/proc/self/fd"), fds);
}

static int see_type(void *ctx, const char *name, unsigned char type)
{
	int *right = ctx;

	*right += (!strcmp(name, "fd") && type == DT_DIR) ||
		  (!strcmp(name, "exe") && type == DT_LNK) ||
		  (!strcmp(name, "stat") && type == DT_REG);
	return 0;
}

/* Not every file system tells types; this one does. */
static void a_list_tells_types(void **state)
{
	int right = 0;

	(void)state;
	assert_int_equal(OS->list(OS, AT_FDCWD, "/proc/self", see_type,
				  &right), 0);
	assert_int_equal(right, 3);
}

static void a_lock_belongs_to_a_descriptor(void **state)
{
	struct fix *fix = *state;

	fix_put(fix, "f", "", 0);
	int a = OS->openat(OS, fix->fd, "f", O_RDONLY, 0);
	int b = OS->openat(OS, fix->fd, "f", O_RDONLY, 0);

	assert_int_equal(OS->flock(OS, a, LOCK_SH), 0);
	assert_int_equal(OS->flock(OS, b, LOCK_SH | LOCK_NB), 0);
	assert_int_equal(OS->flock(OS, b, LOCK_EX | LOCK_NB), -EWOULDBLOCK);
	OS->close(OS, a);
	assert_int_equal(OS->flock(OS, b, LOCK_EX | LOCK_NB), 0);
	OS->close(OS, b);
}

static void wake(int signal)
{
	(void)signal;
}

/* Signals cut long draws short. */
static void random_bytes_differ_to_the_last(void **state)
{
	enum { LEN = 16 << 20, END = 16 };
	static uint8_t one[LEN + 1], two[1000], zero[END];
	const struct itimerval often = { { 0, 300 }, { 0, 300 } },
			       never = { 0 };

	(void)state;
	sigaction(SIGALRM, &(struct sigaction){ .sa_handler = wake }, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	assert_int_equal(OS->random(OS, one, LEN), 0);
	setitimer(ITIMER_REAL, &never, NULL);
	assert_memory_not_equal(one + LEN - END, zero, END);
	assert_int_equal(one[LEN], 0);
	assert_int_equal(OS->random(OS, two, sizeof(two)), 0);
	for (size_t i = 0; i + END <= sizeof(two); i += END)
		assert_memory_not_equal(one + i, two + i, END);
	assert_int_equal(OS->random(OS, NULL, 0), 0);
}

static void file_systems_are_told_apart(void **state)
{
	struct fix *fix = *state;
	uint64_t proc = 0, here = 0;
	int fd = OS->openat(OS, AT_FDCWD, "/proc", O_RDONLY | O_DIRECTORY, 0);

	assert_int_equal(OS->fs_magic(OS, fd, &proc), 0);
	assert_int_equal(proc, 0x9fa0); /* PROC_SUPER_MAGIC */
	assert_int_equal(OS->fs_magic(OS, fix->fd, &here), 0);
	assert_int_not_equal(here, proc);
	assert_true(here > 0 && here <= UINT32_MAX);
	OS->close(OS, fd);
}

/* time(2) may be a tick behind. */
static void the_clock_is_that_of_the_wall(void **state)
{
	time_t before = time(NULL);
	int64_t a = OS->now_ns(OS), b = a;

	(void)state;
	assert_in_range(a / 1000000000, before, time(NULL) + 1);
	while (b == a)
		b = OS->now_ns(OS);
	assert_true(llabs(b - a) < 1000000000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(every_entry_is_there),
		TEST(failures_come_as_negative_errnos),
		TEST(bytes_go_where_they_are_told),
		TEST(names_are_linked_renamed_and_removed),
		TEST(links_are_not_followed),
		TEST(descriptors_are_closed_on_exec),
		TEST(a_list_has_every_name_once_and_no_dots),
		TEST(a_list_stops_when_told_and_leaves_no_descriptor),
		TEST(a_list_tells_types),
		TEST(a_lock_belongs_to_a_descriptor),
		TEST(random_bytes_differ_to_the_last),
		TEST(file_systems_are_told_apart),
		TEST(the_clock_is_that_of_the_wall),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
