// The public header's result type, for the core.
#pragma once

#include "strata/result.h"
