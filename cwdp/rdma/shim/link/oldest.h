/* SPDX-License-Identifier: Apache-2.0 */
/* Put before each file, so that what is built here runs with older glibcs, as those of containers are:
 * functions that have moved to libc.so.6 since are bound by their first versions, which later ones have too.
 */
#pragma once

#if defined(__x86_64__)
#define BY_FIRST_VERSION(function, version) __asm__(".symver " #function "," #function "@" version)
BY_FIRST_VERSION(dlclose, "GLIBC_2.2.5");
BY_FIRST_VERSION(dlopen, "GLIBC_2.2.5");
BY_FIRST_VERSION(dlsym, "GLIBC_2.2.5");
BY_FIRST_VERSION(dlvsym, "GLIBC_2.2.5");
BY_FIRST_VERSION(pthread_attr_setstacksize, "GLIBC_2.2.5");
BY_FIRST_VERSION(pthread_condattr_setclock, "GLIBC_2.3.3");
BY_FIRST_VERSION(pthread_create, "GLIBC_2.2.5");
BY_FIRST_VERSION(pthread_mutex_timedlock, "GLIBC_2.2.5");
BY_FIRST_VERSION(pthread_mutex_trylock, "GLIBC_2.2.5");
BY_FIRST_VERSION(pthread_once, "GLIBC_2.2.5");
BY_FIRST_VERSION(pthread_setname_np, "GLIBC_2.12");
BY_FIRST_VERSION(pthread_sigmask, "GLIBC_2.2.5");
#endif
