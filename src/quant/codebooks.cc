#include "quant/codebooks.h"

#include "quant/codebooks/expand.h"
#include "quant/codebooks/iq1.h"
#include "quant/codebooks/iq2.h"
#include "quant/codebooks/iq3.h"

namespace strata::quant {

constinit const Grid<8, 2048> kIq1Grid = expand_grid<8, 2>(kIq1GridPacked, kIq1GridLevels);
constinit const Grid<8, 256> kIq2XxsGrid = expand_grid<8, 2>(kIq2XxsGridPacked, kIq2XxsGridLevels);
constinit const Grid<8, 512> kIq2XsGrid = expand_grid<8, 2>(kIq2XsGridPacked, kIq2XsGridLevels);
constinit const Grid<8, 1024> kIq2SGrid = expand_grid<8, 2>(kIq2SGridPacked, kIq2SGridLevels);
constinit const Grid<4, 256> kIq3XxsGrid = expand_grid<4, 3>(kIq3XxsGridPacked, kIq3XxsGridLevels);
constinit const Grid<4, 512> kIq3SGrid = expand_grid<4, 3>(kIq3SGridPacked, kIq3SGridLevels);

}  // namespace strata::quant
