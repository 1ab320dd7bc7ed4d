/* SPDX-License-Identifier: GPL-2.0-or-later */
/* charon's entry to the plugin: it offers the network function `ipsec` as the place of security associations. */

#include <daemon.h>
#include <plugins/plugin.h>

#include "kernel_nf.h"

METHOD(plugin_t, get_name, char*,
	plugin_t *this)
{
	return "kernel-nf";
}

METHOD(plugin_t, get_features, int,
	plugin_t *this, plugin_feature_t *features[])
{
	static plugin_feature_t f[] = {
		PLUGIN_CALLBACK(kernel_ipsec_register, kernel_nf_create),
			PLUGIN_PROVIDE(CUSTOM, "kernel-ipsec"),
				PLUGIN_DEPENDS(RNG, RNG_WEAK),
	};
	*features = f;
	return countof(f);
}

METHOD(plugin_t, destroy, void,
	plugin_t *this)
{
	free(this);
}

/* Creates the plugin; charon finds this function by its name. */
plugin_t *kernel_nf_plugin_create()
{
	plugin_t *this;

	INIT(this,
		.get_name = _get_name,
		.get_features = _get_features,
		.destroy = _destroy,
	);
	return this;
}
