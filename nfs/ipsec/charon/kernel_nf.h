/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The security associations and policies of charon, kept in a running network function `ipsec`. */

#ifndef KERNEL_NF_H_
#define KERNEL_NF_H_

#include <kernel/kernel_ipsec.h>

/* Creates the interface; NULL if strongswan.conf does not say where the function's socket is. */
kernel_ipsec_t *kernel_nf_create();

#endif
