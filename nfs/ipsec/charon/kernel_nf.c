/* SPDX-License-Identifier: GPL-2.0-or-later */

#include "kernel_nf.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include <daemon.h>
#include <processing/jobs/callback_job.h>
#include <threading/mutex.h>

#include "association.h"
#include "control.h"

/* Between two looks at the function, in milliseconds, if the settings name no other interval. */
#define LOOK_INTERVAL 100
/* Between two looks for the successor of an instance that has ended, in milliseconds, and how many there are before the usual ones must do. */
#define SEEK_INTERVAL 5
#define SEEKS 400

typedef struct private_kernel_nf_t private_kernel_nf_t;

struct private_kernel_nf_t {

	kernel_ipsec_t public;

	/* Path of the function's control socket, or a pattern of the paths that its instances have. */
	char *socket;

	/* Protects what follows. */
	mutex_t *mutex;

	/* The newest first, as association_t. */
	linked_list_t *associations;

	/* As policy_t. */
	linked_list_t *policies;

	rng_t *rng;

	/* TRUE if the function may lack a change. */
	bool stale;

	/* Between two looks, in milliseconds. */
	u_int interval;

	/* A connection to the instance that answered last, which ends with it; negative: none. */
	int instance;

	/* TRUE if that has ended. Atomic: the watcher's callback must not wait for the mutex. */
	bool ended;

	/* Looks for its successor that are left. */
	u_int seeks;
};

static job_requeue_t seek_job(private_kernel_nf_t *this);

/* Called when the connection to the instance has ended, or has the rest of an answer: its newline. */
static bool on_end(private_kernel_nf_t *this, int fd, watcher_event_t event)
{
	char rest[64];
	ssize_t got;

	do
	{
		got = recv(fd, rest, sizeof(rest), MSG_DONTWAIT);
	}
	while (got > 0 || (got < 0 && errno == EINTR));
	if (got < 0 && errno == EAGAIN)
	{
		return TRUE;
	}
	__atomic_store_n(&this->ended, TRUE, __ATOMIC_SEQ_CST);
	lib->processor->queue_job(lib->processor,
		(job_t*)callback_job_create((void*)seek_job, this, NULL, NULL));
	return FALSE;
}

static void leave_instance(private_kernel_nf_t *this)
{
	if (this->instance >= 0)
	{
		lib->watcher->remove(lib->watcher, this->instance);
		close(this->instance);
		this->instance = -1;
	}
}

/* Asks the function, and follows the end of the instance that answers. */
static json_object *ask(private_kernel_nf_t *this, chunk_t request, bool quiet)
{
	json_object *answer;
	bool follows;

	if (__atomic_exchange_n(&this->ended, FALSE, __ATOMIC_SEQ_CST))
	{
		leave_instance(this);
		this->seeks = SEEKS;
	}
	follows = this->instance < 0;
	answer = control_ask(this->socket, request, quiet,
						 follows ? &this->instance : NULL);
	if (follows && this->instance >= 0)
	{
		lib->watcher->add(lib->watcher, this->instance, WATCHER_READ,
						  (void*)on_end, this);
	}
	return answer;
}

/* Gives the function all tunnels. */
static bool push(private_kernel_nf_t *this, bool quiet)
{
	json_object *answer;
	chunk_t request;

	request = write_negotiated(this->associations, this->policies);
	answer = ask(this, request, quiet);
	chunk_clear(&request);
	this->stale = !answer;
	if (answer)
	{
		json_object_put(answer);
	}
	return !this->stale;
}

/* Returns the association with an SPI; charon identifies it also by its destination. */
static association_t *find(private_kernel_nf_t *this, uint32_t spi, host_t *dst)
{
	enumerator_t *enumerator;
	association_t *each, *found = NULL;

	enumerator = this->associations->create_enumerator(this->associations);
	while (!found && enumerator->enumerate(enumerator, &each))
	{
		if (each->spi == spi && each->dst->ip_equals(each->dst, dst))
		{
			found = each;
		}
	}
	enumerator->destroy(enumerator);
	return found;
}

METHOD(kernel_ipsec_t, get_features, kernel_feature_t,
	private_kernel_nf_t *this)
{
	/* The ends of a tunnel are those of its associations. */
	return KERNEL_NO_POLICY_UPDATES;
}

/* Tells whether an inbound association has an SPI. */
static bool is_taken(private_kernel_nf_t *this, uint32_t spi)
{
	enumerator_t *enumerator;
	association_t *each;
	bool taken = FALSE;

	enumerator = this->associations->create_enumerator(this->associations);
	while (!taken && enumerator->enumerate(enumerator, &each))
	{
		taken = each->inbound && each->spi == spi;
	}
	enumerator->destroy(enumerator);
	return taken;
}

METHOD(kernel_ipsec_t, get_spi, status_t,
	private_kernel_nf_t *this, host_t *src, host_t *dst, uint8_t protocol,
	uint32_t *spi)
{
	uint32_t number;
	bool drawn;

	this->mutex->lock(this->mutex);
	do
	{
		drawn = this->rng->get_bytes(this->rng, sizeof(number),
									 (uint8_t*)&number);
		number = KERNEL_SPI_MIN | (number & (KERNEL_SPI_MAX - KERNEL_SPI_MIN));
		*spi = htonl(number);
	}
	while (drawn && is_taken(this, *spi));
	this->mutex->unlock(this->mutex);
	return drawn ? SUCCESS : FAILED;
}

METHOD(kernel_ipsec_t, get_cpi, status_t,
	private_kernel_nf_t *this, host_t *src, host_t *dst, uint16_t *cpi)
{
	return NOT_SUPPORTED;
}

METHOD(kernel_ipsec_t, add_sa, status_t,
	private_kernel_nf_t *this, kernel_ipsec_sa_id_t *id,
	kernel_ipsec_add_sa_t *data)
{
	association_t *association;
	status_t status = SUCCESS;

	association = association_create(id, data);
	if (!association)
	{
		return NOT_SUPPORTED;
	}
	this->mutex->lock(this->mutex);
	this->associations->insert_first(this->associations, association);
	if (!push(this, FALSE))
	{
		this->associations->remove(this->associations, association, NULL);
		association_destroy(association);
		status = FAILED;
	}
	this->mutex->unlock(this->mutex);
	return status;
}

METHOD(kernel_ipsec_t, update_sa, status_t,
	private_kernel_nf_t *this, kernel_ipsec_sa_id_t *id,
	kernel_ipsec_update_sa_t *data)
{
	association_t *association;
	status_t status = NOT_FOUND;

	this->mutex->lock(this->mutex);
	association = find(this, id->spi, id->dst);
	if (association)
	{
		association->src->destroy(association->src);
		association->dst->destroy(association->dst);
		association->src = data->new_src->clone(data->new_src);
		association->dst = data->new_dst->clone(data->new_dst);
		association->encap = data->new_encap;
		association->reqid = data->new_reqid ?: association->reqid;
		status = push(this, FALSE) ? SUCCESS : FAILED;
	}
	this->mutex->unlock(this->mutex);
	return status;
}

METHOD(kernel_ipsec_t, del_sa, status_t,
	private_kernel_nf_t *this, kernel_ipsec_sa_id_t *id,
	kernel_ipsec_del_sa_t *data)
{
	association_t *association;
	status_t status = NOT_FOUND;

	this->mutex->lock(this->mutex);
	association = find(this, id->spi, id->dst);
	if (association)
	{
		this->associations->remove(this->associations, association, NULL);
		association_destroy(association);
		/* A failure is tried again by the next look. */
		status = push(this, FALSE) ? SUCCESS : FAILED;
	}
	this->mutex->unlock(this->mutex);
	return status;
}

METHOD(kernel_ipsec_t, flush_sas, status_t,
	private_kernel_nf_t *this)
{
	association_t *association;
	status_t status;

	this->mutex->lock(this->mutex);
	while (this->associations->remove_first(this->associations,
											(void**)&association) == SUCCESS)
	{
		association_destroy(association);
	}
	status = push(this, FALSE) ? SUCCESS : FAILED;
	this->mutex->unlock(this->mutex);
	return status;
}

/* Returns a policy. */
static policy_t *find_policy(private_kernel_nf_t *this, uint32_t reqid,
							 kernel_ipsec_policy_id_t *id)
{
	enumerator_t *enumerator;
	policy_t *each, *found = NULL;

	enumerator = this->policies->create_enumerator(this->policies);
	while (!found && enumerator->enumerate(enumerator, &each))
	{
		if (each->reqid == reqid && id->src_ts->equals(id->src_ts, each->local) &&
			id->dst_ts->equals(id->dst_ts, each->remote))
		{
			found = each;
		}
	}
	enumerator->destroy(enumerator);
	return found;
}

/* Tells whether a policy is one that the function has: inbound packets are selected by those for outbound ones. */
static bool is_ours(kernel_ipsec_policy_id_t *id,
					kernel_ipsec_manage_policy_t *data)
{
	return data->type == POLICY_IPSEC && id->dir == POLICY_OUT;
}

METHOD(kernel_ipsec_t, add_policy, status_t,
	private_kernel_nf_t *this, kernel_ipsec_policy_id_t *id,
	kernel_ipsec_manage_policy_t *data)
{
	policy_t *policy;
	status_t status = SUCCESS;

	if (!is_ours(id, data))
	{
		/* What no tunnel selects is dropped anyway; shunts that let it pass are impossible. */
		return data->type == POLICY_PASS ? NOT_SUPPORTED : SUCCESS;
	}
	this->mutex->lock(this->mutex);
	policy = find_policy(this, data->sa->reqid, id);
	if (policy)
	{
		policy->references++;
	}
	else
	{
		policy = policy_create(data->sa->reqid, id->src_ts, id->dst_ts);
		if (policy)
		{
			this->policies->insert_last(this->policies, policy);
		}
		if (!policy || !push(this, FALSE))
		{
			status = FAILED;
		}
		if (policy && status != SUCCESS)
		{
			this->policies->remove(this->policies, policy, NULL);
			policy_destroy(policy);
		}
	}
	this->mutex->unlock(this->mutex);
	return status;
}

METHOD(kernel_ipsec_t, query_policy, status_t,
	private_kernel_nf_t *this, kernel_ipsec_policy_id_t *id,
	kernel_ipsec_query_policy_t *data, time_t *use_time)
{
	/* charon asks for the associations' times then. */
	return NOT_SUPPORTED;
}

METHOD(kernel_ipsec_t, del_policy, status_t,
	private_kernel_nf_t *this, kernel_ipsec_policy_id_t *id,
	kernel_ipsec_manage_policy_t *data)
{
	policy_t *policy;
	status_t status = SUCCESS;

	if (!is_ours(id, data))
	{
		return SUCCESS;
	}
	this->mutex->lock(this->mutex);
	policy = find_policy(this, data->sa->reqid, id);
	if (policy && --policy->references == 0)
	{
		this->policies->remove(this->policies, policy, NULL);
		policy_destroy(policy);
		status = push(this, FALSE) ? SUCCESS : FAILED;
	}
	this->mutex->unlock(this->mutex);
	return policy ? status : NOT_FOUND;
}

METHOD(kernel_ipsec_t, flush_policies, status_t,
	private_kernel_nf_t *this)
{
	policy_t *policy;
	status_t status;

	this->mutex->lock(this->mutex);
	while (this->policies->remove_first(this->policies,
										(void**)&policy) == SUCCESS)
	{
		policy_destroy(policy);
	}
	status = push(this, FALSE) ? SUCCESS : FAILED;
	this->mutex->unlock(this->mutex);
	return status;
}

METHOD(kernel_ipsec_t, bypass_socket, bool,
	private_kernel_nf_t *this, int fd, int family)
{
	/* The function passes IKE by itself. */
	return TRUE;
}

METHOD(kernel_ipsec_t, enable_udp_decap, bool,
	private_kernel_nf_t *this, int fd, int family, uint16_t port)
{
	/* The function takes ESP out of UDP before charon sees it. */
	return TRUE;
}

static uint64_t number_in(json_object *object, char *field)
{
	json_object *value;

	return json_object_object_get_ex(object, field, &value) ?
		   json_object_get_uint64(value) : 0;
}

static const char *text_in(json_object *object, char *field)
{
	json_object *value;

	return json_object_object_get_ex(object, field, &value) ?
		   json_object_get_string(value) : "";
}

/* Tells charon of an association's lifetime. */
static void tell_lifetime(association_t *association, const char *state)
{
	bool over = streq(state, "expired");

	if (over && !association->told_hard)
	{
		association->told_hard = association->told_soft = TRUE;
		charon->kernel->expire(charon->kernel, IPPROTO_ESP, association->spi,
							   association->dst, TRUE);
	}
	else if (streq(state, "soft") && !association->told_soft)
	{
		association->told_soft = TRUE;
		charon->kernel->expire(charon->kernel, IPPROTO_ESP, association->spi,
							   association->dst, FALSE);
	}
}

/* Notes what the function tells of an association. */
static void note(association_t *association, json_object *told)
{
	uint64_t packets = number_in(told, "packets");
	uint64_t sequence = number_in(told, "sequence");
	const char *state = text_in(told, "state");

	if (packets != association->packets)
	{
		association->used = time_monotonic(NULL);
	}
	association->packets = packets;
	association->bytes = number_in(told, "bytes");
	/* An instance without the state of the one before: the peer refuses its numbers, and it may accept replays. New keys have neither trouble. */
	if (sequence < association->sequence || streq(state, "distrusted"))
	{
		state = "soft";
	}
	association->sequence = max(sequence, association->sequence);
	tell_lifetime(association, state);
}

/* Tells charon if the peer's packets come from another address or port, because a NAT has changed its mapping. */
static void tell_mapping(association_t *association, json_object *tunnel)
{
	host_t *remote = association_remote(association), *now;
	uint16_t port = number_in(tunnel, "port");

	if (!association->inbound || !association->encap || !port)
	{
		return;
	}
	now = host_create_from_string((char*)text_in(tunnel, "peer"), port);
	if (now && !now->equals(now, remote))
	{
		charon->kernel->mapping(charon->kernel, IPPROTO_ESP, association->spi,
								association->dst, now);
	}
	DESTROY_IF(now);
}

/* Returns the association that a function's answer is about. */
static association_t *told_about(private_kernel_nf_t *this, json_object *told)
{
	bool inbound = streq(text_in(told, "direction"), "inbound");
	uint32_t spi = htonl(number_in(told, "spi"));
	enumerator_t *enumerator;
	association_t *each, *found = NULL;

	enumerator = this->associations->create_enumerator(this->associations);
	while (!found && enumerator->enumerate(enumerator, &each))
	{
		if (each->spi == spi && each->inbound == inbound)
		{
			found = each;
		}
	}
	enumerator->destroy(enumerator);
	return found;
}

/* Looks through a function's answer, and returns how many of our associations it has. */
static u_int look_through(private_kernel_nf_t *this, json_object *shown)
{
	json_object *tunnels, *tunnel, *all, *told;
	association_t *association;
	size_t i, j;
	u_int count = 0;

	if (!json_object_object_get_ex(shown, "tunnels", &tunnels))
	{
		return 0;
	}
	for (i = 0; i < json_object_array_length(tunnels); i++)
	{
		tunnel = json_object_array_get_idx(tunnels, i);
		if (!strpfx(text_in(tunnel, "name"), "ike-") ||
			!json_object_object_get_ex(tunnel, "associations", &all))
		{
			continue;
		}
		for (j = 0; j < json_object_array_length(all); j++)
		{
			told = json_object_array_get_idx(all, j);
			association = told_about(this, told);
			if (association)
			{
				count++;
				note(association, told);
				tell_mapping(association, tunnel);
			}
		}
	}
	return count;
}

/* Returns how many associations the function should have: those of reqids with a policy. */
static u_int expected(private_kernel_nf_t *this)
{
	enumerator_t *enumerator, *policies;
	association_t *each;
	policy_t *policy;
	u_int count = 0;
	bool has;

	enumerator = this->associations->create_enumerator(this->associations);
	while (enumerator->enumerate(enumerator, &each))
	{
		has = FALSE;
		policies = this->policies->create_enumerator(this->policies);
		while (!has && policies->enumerate(policies, &policy))
		{
			has = policy->reqid == each->reqid;
		}
		policies->destroy(policies);
		count += has;
	}
	enumerator->destroy(enumerator);
	return count;
}

/* Looks at the function: counts, lifetimes, peers. A function that lacks associations, because it is another instance, gets them. */
static void look(private_kernel_nf_t *this, bool quiet)
{
	json_object *shown;
	bool lacks;

	shown = ask(this, chunk_from_str("{\"do\":\"ipsec.show\"}\n"), quiet);
	if (!shown)
	{
		return;
	}
	lacks = look_through(this, shown) < expected(this);
	if (lacks)
	{
		DBG1(DBG_KNL, "%s: the network function lacks associations: it gets "
			 "them again", this->socket);
	}
	if (lacks || this->stale)
	{
		push(this, quiet);
	}
	json_object_put(shown);
}

static void look_if_useful(private_kernel_nf_t *this)
{
	if (this->stale || this->associations->get_count(this->associations))
	{
		look(this, TRUE);
	}
}

static job_requeue_t look_job(private_kernel_nf_t *this)
{
	this->mutex->lock(this->mutex);
	look_if_useful(this);
	this->mutex->unlock(this->mutex);
	return JOB_RESCHEDULE_MS(this->interval);
}

/* Looks often for the successor of an instance that has ended: until it has the tunnels, their packets are lost. */
static job_requeue_t seek_job(private_kernel_nf_t *this)
{
	bool again;

	this->mutex->lock(this->mutex);
	look_if_useful(this);
	again = (this->instance < 0 || this->stale) && this->seeks > 0;
	this->seeks -= again;
	this->mutex->unlock(this->mutex);
	return again ? JOB_RESCHEDULE_MS(SEEK_INTERVAL) : JOB_REQUEUE_NONE;
}

METHOD(kernel_ipsec_t, query_sa, status_t,
	private_kernel_nf_t *this, kernel_ipsec_sa_id_t *id,
	kernel_ipsec_query_sa_t *data, uint64_t *bytes, uint64_t *packets,
	time_t *time)
{
	association_t *association;

	this->mutex->lock(this->mutex);
	look(this, TRUE);
	association = find(this, id->spi, id->dst);
	if (association)
	{
		*bytes = association->bytes;
		*packets = association->packets;
		*time = association->used;
	}
	this->mutex->unlock(this->mutex);
	return association ? SUCCESS : NOT_FOUND;
}

METHOD(kernel_ipsec_t, destroy, void,
	private_kernel_nf_t *this)
{
	this->associations->destroy_function(this->associations,
										 (void*)association_destroy);
	this->policies->destroy_function(this->policies, (void*)policy_destroy);
	DESTROY_IF(this->rng);
	leave_instance(this);
	this->mutex->destroy(this->mutex);
	free(this);
}

kernel_ipsec_t *kernel_nf_create()
{
	private_kernel_nf_t *this;
	char *socket;

	socket = lib->settings->get_str(lib->settings,
								"%s.plugins.kernel-nf.socket", NULL, lib->ns);
	if (!socket)
	{
		DBG1(DBG_KNL, "kernel-nf: strongswan.conf lacks "
			 "%s.plugins.kernel-nf.socket, the path of the network function's "
			 "control socket", lib->ns);
		return NULL;
	}
	INIT(this,
		.public = {
			.get_features = _get_features,
			.get_spi = _get_spi,
			.get_cpi = _get_cpi,
			.add_sa = _add_sa,
			.update_sa = _update_sa,
			.query_sa = _query_sa,
			.del_sa = _del_sa,
			.flush_sas = _flush_sas,
			.add_policy = _add_policy,
			.query_policy = _query_policy,
			.del_policy = _del_policy,
			.flush_policies = _flush_policies,
			.bypass_socket = _bypass_socket,
			.enable_udp_decap = _enable_udp_decap,
			.destroy = _destroy,
		},
		.socket = socket,
		.mutex = mutex_create(MUTEX_TYPE_DEFAULT),
		.associations = linked_list_create(),
		.policies = linked_list_create(),
		.rng = lib->crypto->create_rng(lib->crypto, RNG_WEAK),
		/* Associations of an earlier charon are removed. */
		.stale = TRUE,
		.instance = -1,
		.interval = lib->settings->get_int(lib->settings,
						"%s.plugins.kernel-nf.interval", LOOK_INTERVAL, lib->ns),
	);
	if (!this->rng)
	{
		DBG1(DBG_KNL, "kernel-nf: no random numbers for SPIs");
		destroy(this);
		return NULL;
	}
	lib->scheduler->schedule_job_ms(lib->scheduler,
		(job_t*)callback_job_create((void*)look_job, this, NULL, NULL),
		this->interval);
	return &this->public;
}
