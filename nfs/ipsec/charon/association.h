/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the plugin remembers of charon's associations and policies, and how the network function reads them. */

#ifndef ASSOCIATION_H_
#define ASSOCIATION_H_

#include <collections/linked_list.h>
#include <kernel/kernel_ipsec.h>

/* A security association with its key. */
typedef struct {
	/* In network byte order, as charon has it. */
	uint32_t spi;
	uint32_t reqid;
	host_t *src, *dst;
	bool inbound, encap, esn, copy_df;
	uint32_t window;
	lifetime_cfg_t lifetime;
	/* Of AES-GCM, with its salt; overwritten at the end. */
	chunk_t key;
	/* What the function told last. */
	uint64_t packets, bytes, sequence;
	/* When packets were seen last, by charon's monotonic clock. */
	time_t used;
	bool told_soft, told_hard;
} association_t;

/* A policy for outbound packets; charon adds it once for each of its associations. */
typedef struct {
	uint32_t reqid;
	traffic_selector_t *local, *remote;
	u_int references;
} policy_t;

/* Creates an association from charon's data; NULL, with a message, if the function cannot have it. */
association_t *association_create(kernel_ipsec_sa_id_t *id,
								  kernel_ipsec_add_sa_t *data);

/* Destroys an association and overwrites its key. */
void association_destroy(association_t *this);

/* Returns the peer's end. */
host_t *association_remote(association_t *this);

/* Returns the gateway's end. */
host_t *association_local(association_t *this);

/* Creates a policy; NULL, with a message, if the function cannot have such selectors. */
policy_t *policy_create(uint32_t reqid, traffic_selector_t *local,
						traffic_selector_t *remote);

void policy_destroy(policy_t *this);

/*
 * Writes the request that gives the function all tunnels: those of associations with a policy. The newest associations are first, so that they
 * protect. It has keys: the caller overwrites it.
 */
chunk_t write_negotiated(linked_list_t *associations, linked_list_t *policies);

#endif
