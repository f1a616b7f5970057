// The public header's invariant check, for the core.
#pragma once

#include "strata/check.h"
