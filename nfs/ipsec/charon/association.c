/* SPDX-License-Identifier: GPL-2.0-or-later */

#include "association.h"

#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>

#include <utils/debug.h>

/* Of the windows against replays that the function has. */
#define LEAST_WINDOW 32
#define MOST_WINDOW 4096

#define SALT_LEN 4

association_t *association_create(kernel_ipsec_sa_id_t *id,
								  kernel_ipsec_add_sa_t *data)
{
	association_t *this;
	size_t key = data->enc_key.len;

	if (id->proto != IPPROTO_ESP || data->mode != MODE_TUNNEL)
	{
		DBG1(DBG_KNL, "nf has ESP in tunnel mode only, not protocol %d with "
			 "mode %d", id->proto, data->mode);
		return NULL;
	}
	if (data->enc_alg != ENCR_AES_GCM_ICV16 ||
		(key != 16 + SALT_LEN && key != 32 + SALT_LEN))
	{
		DBG1(DBG_KNL, "nf has AES-GCM with keys of 128 and 256 bits only, not "
			 "%N with %zu bits: esp_proposals = aes256gcm16-esn",
			 encryption_algorithm_names, data->enc_alg, key * 8);
		return NULL;
	}
	if (data->ipcomp != IPCOMP_NONE || data->interface || id->if_id ||
		id->mark.value)
	{
		DBG1(DBG_KNL, "nf has no compression, interfaces and marks");
		return NULL;
	}
	INIT(this,
		.spi = id->spi,
		.reqid = data->reqid,
		.src = id->src->clone(id->src),
		.dst = id->dst->clone(id->dst),
		.inbound = data->inbound,
		.encap = data->encap,
		.esn = data->esn,
		.copy_df = data->copy_df,
		.window = max(LEAST_WINDOW, min(MOST_WINDOW, data->replay_window)),
		.lifetime = *data->lifetime,
		.key = chunk_clone(data->enc_key),
	);
	return this;
}

void association_destroy(association_t *this)
{
	this->src->destroy(this->src);
	this->dst->destroy(this->dst);
	chunk_clear(&this->key);
	free(this);
}

host_t *association_remote(association_t *this)
{
	return this->inbound ? this->src : this->dst;
}

host_t *association_local(association_t *this)
{
	return this->inbound ? this->dst : this->src;
}

/* Tells whether the function can have a selector: a prefix, and ports of TCP and UDP only. */
static bool is_possible(traffic_selector_t *ts)
{
	uint16_t from = ts->get_from_port(ts), to = ts->get_to_port(ts);
	uint8_t protocol = ts->get_protocol(ts), mask;
	bool exact, has_ports = from != 0 || to != 0xffff;
	host_t *net;

	exact = ts->to_subnet(ts, &net, &mask);
	net->destroy(net);
	return exact && from <= to &&
		   (!has_ports || protocol == IPPROTO_TCP || protocol == IPPROTO_UDP);
}

policy_t *policy_create(uint32_t reqid, traffic_selector_t *local,
						traffic_selector_t *remote)
{
	policy_t *this;

	if (!is_possible(local) || !is_possible(remote))
	{
		DBG1(DBG_KNL, "nf selects by prefixes, and by ports of TCP and UDP "
			 "only, not by %R === %R", local, remote);
		return NULL;
	}
	INIT(this,
		.reqid = reqid,
		.local = local->clone(local),
		.remote = remote->clone(remote),
		.references = 1,
	);
	return this;
}

void policy_destroy(policy_t *this)
{
	this->local->destroy(this->local);
	this->remote->destroy(this->remote);
	free(this);
}

/* Writes an address without its port. */
static void write_address(FILE *out, host_t *host)
{
	char text[INET6_ADDRSTRLEN] = "";

	inet_ntop(host->get_family(host), host->get_address(host).ptr, text,
			  sizeof(text));
	fputs(text, out);
}

static void write_prefix(FILE *out, char *name, traffic_selector_t *ts)
{
	host_t *net;
	uint8_t mask;

	ts->to_subnet(ts, &net, &mask);
	fprintf(out, "\"%s\":\"", name);
	write_address(out, net);
	fprintf(out, "/%d\"", mask);
	net->destroy(net);
}

static void write_ports(FILE *out, char *name, traffic_selector_t *ts)
{
	uint16_t from = ts->get_from_port(ts), to = ts->get_to_port(ts);

	if (from != 0 || to != 0xffff)
	{
		fprintf(out, ",\"%s\":[%d,%d]", name, from, to);
	}
}

static void write_policy(FILE *out, policy_t *policy)
{
	uint8_t protocol = max(policy->local->get_protocol(policy->local),
						   policy->remote->get_protocol(policy->remote));

	fputc('{', out);
	write_prefix(out, "local", policy->local);
	fputc(',', out);
	write_prefix(out, "remote", policy->remote);
	if (protocol)
	{
		fprintf(out, ",\"protocol\":%d", protocol);
	}
	write_ports(out, "local_ports", policy->local);
	write_ports(out, "remote_ports", policy->remote);
	fputc('}', out);
}

/* Writes a lifetime, if it has limits; 0 is none. */
static void write_limits(FILE *out, char *name, uint64_t bytes,
						 uint64_t packets, uint64_t seconds)
{
	char *comma = "";

	if (!bytes && !packets && !seconds)
	{
		return;
	}
	fprintf(out, ",\"%s\":{", name);
	if (bytes)
	{
		fprintf(out, "\"bytes\":%" PRIu64, bytes);
		comma = ",";
	}
	if (packets)
	{
		fprintf(out, "%s\"packets\":%" PRIu64, comma, packets);
		comma = ",";
	}
	if (seconds)
	{
		fprintf(out, "%s\"time\":\"%" PRIu64 "s\"", comma, seconds);
	}
	fputc('}', out);
}

/*
 * Returns a soft limit; 0 is none. Without one (rekey_time = 0), charon subtracts its random part from 0, which gives
 * a huge number.
 */
static uint64_t soft_limit(uint64_t rekey, uint64_t life)
{
	return rekey > INT64_MAX || (life && rekey >= life) ? 0 : rekey;
}

static void write_association(FILE *out, association_t *this)
{
	lifetime_cfg_t *life = &this->lifetime;
	size_t at;

	fprintf(out, "{\"spi\":%u,\"esn\":%s,\"secret\":\"", ntohl(this->spi),
			this->esn ? "true" : "false");
	for (at = 0; at < this->key.len; at++)
	{
		fprintf(out, "%02x", this->key.ptr[at]);
	}
	fputc('"', out);
	if (this->inbound)
	{
		fprintf(out, ",\"window\":%u", this->window);
	}
	write_limits(out, "soft", soft_limit(life->bytes.rekey, life->bytes.life),
				 soft_limit(life->packets.rekey, life->packets.life),
				 soft_limit(life->time.rekey, life->time.life));
	write_limits(out, "hard", life->bytes.life, life->packets.life,
				 life->time.life);
	fputc('}', out);
}

/* Tells whether two associations belong to one tunnel. */
static bool is_same_tunnel(association_t *a, association_t *b)
{
	return a->reqid == b->reqid && a->encap == b->encap &&
		association_local(a)->ip_equals(association_local(a),
										association_local(b)) &&
		association_remote(a)->ip_equals(association_remote(a),
										 association_remote(b));
}

static void write_associations(FILE *out, linked_list_t *associations,
							   association_t *first, bool inbound)
{
	enumerator_t *enumerator;
	association_t *each;
	char *comma = "";

	fprintf(out, ",\"%s\":[", inbound ? "inbound" : "outbound");
	enumerator = associations->create_enumerator(associations);
	while (enumerator->enumerate(enumerator, &each))
	{
		if (each->inbound == inbound && is_same_tunnel(each, first))
		{
			fputs(comma, out);
			write_association(out, each);
			comma = ",";
		}
	}
	enumerator->destroy(enumerator);
	fputc(']', out);
}

/* Writes the selectors of a tunnel. */
static void write_policies(FILE *out, linked_list_t *policies, uint32_t reqid)
{
	enumerator_t *enumerator;
	policy_t *each;
	char *comma = "";

	fputs(",\"selectors\":[", out);
	enumerator = policies->create_enumerator(policies);
	while (enumerator->enumerate(enumerator, &each))
	{
		if (each->reqid == reqid)
		{
			fputs(comma, out);
			write_policy(out, each);
			comma = ",";
		}
	}
	enumerator->destroy(enumerator);
	fputc(']', out);
}

/* Writes a tunnel; its newest association tells the ends. */
static void write_tunnel(FILE *out, linked_list_t *associations,
						 linked_list_t *policies, association_t *first,
						 u_int number)
{
	host_t *remote = association_remote(first);

	/* Two peers with the same selectors have one reqid. */
	fprintf(out, "{\"name\":\"ike-%u", first->reqid);
	if (number)
	{
		fprintf(out, "-%u", number + 1);
	}
	fputs("\",\"local\":\"", out);
	write_address(out, association_local(first));
	fputs("\",\"remote\":\"", out);
	write_address(out, remote);
	fputs("\"", out);
	if (first->encap)
	{
		fprintf(out, ",\"encapsulation\":\"udp\",\"remote_port\":%d",
				remote->get_port(remote));
	}
	fprintf(out, ",\"dont_fragment\":\"%s\"", first->copy_df ? "copy" : "clear");
	write_policies(out, policies, first->reqid);
	write_associations(out, associations, first, FALSE);
	write_associations(out, associations, first, TRUE);
	fputc('}', out);
}

static bool has_policy(linked_list_t *policies, uint32_t reqid)
{
	enumerator_t *enumerator;
	policy_t *each;
	bool has = FALSE;

	enumerator = policies->create_enumerator(policies);
	while (!has && enumerator->enumerate(enumerator, &each))
	{
		has = each->reqid == reqid;
	}
	enumerator->destroy(enumerator);
	return has;
}

/* Returns how many other tunnels of its reqid are before an association's, or -1 if the association is not the first one of its tunnel. */
static int number_of(linked_list_t *associations, association_t *this)
{
	linked_list_t *firsts = linked_list_create();
	enumerator_t *enumerator, *others;
	association_t *each, *other;
	int number = 0;

	enumerator = associations->create_enumerator(associations);
	while (number >= 0 && enumerator->enumerate(enumerator, &each) &&
		   each != this)
	{
		bool is_first = each->reqid == this->reqid;

		if (is_same_tunnel(each, this))
		{
			number = -1;
			break;
		}
		others = firsts->create_enumerator(firsts);
		while (is_first && others->enumerate(others, &other))
		{
			is_first = !is_same_tunnel(each, other);
		}
		others->destroy(others);
		if (is_first)
		{
			firsts->insert_last(firsts, each);
			number++;
		}
	}
	enumerator->destroy(enumerator);
	firsts->destroy(firsts);
	return number;
}

/* A growing text. */
typedef struct {
	chunk_t room;
	size_t used;
} text_t;

/* Appends to a text. Memory that it leaves has keys, so it is overwritten. */
static ssize_t append(void *cookie, const char *bytes, size_t length)
{
	text_t *text = cookie;
	chunk_t more;

	if (text->used + length > text->room.len)
	{
		more = chunk_alloc(2 * (text->used + length) + 4096);
		memcpy(more.ptr, text->room.ptr, text->used);
		chunk_clear(&text->room);
		text->room = more;
	}
	memcpy(text->room.ptr + text->used, bytes, length);
	text->used += length;
	return length;
}

chunk_t write_negotiated(linked_list_t *associations, linked_list_t *policies)
{
	enumerator_t *enumerator;
	association_t *each;
	char *comma = "";
	text_t text = {};
	int number;
	FILE *out;

	out = fopencookie(&text, "w", (cookie_io_functions_t){ .write = append });
	if (!out)
	{
		return chunk_empty;
	}
	/* A buffer of the library would keep keys. */
	setvbuf(out, NULL, _IONBF, 0);
	fputs("{\"do\":\"ipsec.negotiate\",\"tunnels\":[", out);
	enumerator = associations->create_enumerator(associations);
	while (enumerator->enumerate(enumerator, &each))
	{
		number = number_of(associations, each);
		if (number >= 0 && has_policy(policies, each->reqid))
		{
			fputs(comma, out);
			write_tunnel(out, associations, policies, each, number);
			comma = ",";
		}
	}
	enumerator->destroy(enumerator);
	fputs("]}\n", out);
	fclose(out);
	return chunk_create(text.room.ptr, text.used);
}
