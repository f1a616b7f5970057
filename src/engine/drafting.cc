// Who guesses in a session, and what came of it.
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "engine/parts.h"
#include "spec/auto_drafter.h"
#include "spec/dflash_drafter.h"
#include "spec/mtp.h"
#include "spec/suffix.h"

namespace strata {
namespace {

// Of the MTP layer, whose guesses take turns.
constexpr std::int64_t kRowsDefault = 4;
// Before anything is known: of first guesses that are right, and what the further rows of a block
// cost beside its first.
constexpr double kShareDefault = 0.6;
constexpr double kBlockSlope = 0.1;
// What an MTP guess takes beside a layer of the trunk: the fusion, the mixer and the head.
constexpr double kMtpLayers = 1.5;

spec::NeuralPrior mtp_prior(const model::Config& config) {
    spec::NeuralPrior prior;
    prior.cost = kMtpLayers / static_cast<double>(config.layers);
    prior.slope = 1;
    prior.share = kShareDefault;
    prior.count_max = kWindowMax - 1;
    return prior;
}

spec::NeuralPrior block_prior(const dflash::Config& draft, const model::Config& config) {
    spec::NeuralPrior prior;
    prior.cost = static_cast<double>(draft.layers) / static_cast<double>(config.layers);
    prior.slope = kBlockSlope;
    prior.share = kShareDefault;
    prior.count_max = std::min(kWindowMax, draft.block_size) - 1;
    prior.block = true;
    return prior;
}

}  // namespace

Status Engine::Parts::check_drafting(const Drafting& drafting) const {
    if (drafting.kind == DraftKind::none) return Ok{};
    if (drafting.rows != 0 && (drafting.rows < 2 || drafting.rows > kWindowMax)) {
        return STRATA_ERROR("a verify window has ", drafting.rows, " rows, wanted 2 to ",
                            kWindowMax);
    }
    const double floor = drafting.confidence_min.value_or(0);
    if (!(floor >= 0 && floor <= 1)) {
        return STRATA_ERROR("the least confidence of a guess is ", floor, ", wanted 0 to 1");
    }
    if (drafting.kind == DraftKind::dflash && dflash == nullptr) {
        return STRATA_ERROR("guesses of a DFlash2 draft were asked for, and none was loaded");
    }
    if (drafting.kind == DraftKind::mtp && !info.has_mtp) {
        return STRATA_ERROR(
            "the model '", info.name,
            "' has no MTP layer, and its guesses were asked for: --mtp FILE with one "
            "is wanted");
    }
    return Ok{};
}

Status Session::State::make_drafter() {
    if (drafting.rows == 0 && drafting.kind == DraftKind::dflash) {
        drafting.rows = std::min(kWindowMax, parts.dflash->config().block_size);
    } else if (drafting.rows == 0) {
        drafting.rows = drafting.kind == DraftKind::mtp ? kRowsDefault : kWindowMax;
    }
    const double default_floor = drafting.kind == DraftKind::dflash ? kDflashConfidenceMin : 0;
    const auto floor = static_cast<float>(drafting.confidence_min.value_or(default_floor));
    switch (drafting.kind) {
        case DraftKind::none:
            break;
        case DraftKind::suffix:
            drafter = std::make_unique<spec::SuffixDrafter>();
            break;
        case DraftKind::mtp:
            drafter = std::make_unique<spec::MtpDrafter>(*parts.target, sequence, floor);
            break;
        case DraftKind::dflash: {
            STRATA_ASSIGN(drafter, make_dflash(floor));
            break;
        }
        case DraftKind::best: {
            STRATA_ASSIGN(drafter, make_best(floor));
            break;
        }
    }
    return Ok{};
}

Result<std::unique_ptr<spec::Drafter>> Session::State::make_dflash(float floor) {
    const model::SequenceOptions& options = sequence.options();
    STRATA_ASSIGN(auto made, spec::DflashDrafter::create(*parts.dflash,
                                                         {options.context, options.cache}, floor));
    return std::unique_ptr<spec::Drafter>(std::move(made));
}

Result<std::unique_ptr<spec::Drafter>> Session::State::make_best(float floor) {
    const model::Config& config = parts.target->config();
    std::vector<spec::AutoDrafter::Neural> drafters;
    if (parts.info.has_mtp) {
        drafters.push_back({std::make_unique<spec::MtpDrafter>(*parts.target, sequence, floor),
                            mtp_prior(config)});
    }
    if (parts.dflash != nullptr) {
        STRATA_ASSIGN(auto block, make_dflash(floor));
        drafters.push_back({std::move(block), block_prior(parts.dflash->config(), config)});
    }
    if (parts.costs == nullptr) {
        std::vector<spec::NeuralPrior> priors;
        for (const auto& one : drafters) priors.push_back(one.prior);
        parts.costs = std::make_unique<spec::Costs>(priors);
    }
    return std::unique_ptr<spec::Drafter>(
        std::make_unique<spec::AutoDrafter>(std::move(drafters), *parts.costs));
}

void Session::State::begin_counts(DraftCounts& counts) const {
    if (!drafter) return;
    counts.kind = drafting.kind == DraftKind::best ? "none" : drafter->name();
    if (drafting.kind != DraftKind::best) return;
    counts.by_drafter = {{.name = "none"}, {.name = "suffix"}};
    if (parts.info.has_mtp) counts.by_drafter.push_back({.name = "mtp"});
    if (parts.dflash != nullptr) counts.by_drafter.push_back({.name = "dflash"});
}

void Session::State::count(const spec::Verified& window, DraftCounts& counts) const {
    ++counts.windows;
    counts.drafted += window.rows - 1;
    counts.accepted += window.accepted;
    counts.draft_ms += window.draft_ms;
    counts.verify_ms += window.verify_ms;
    const auto accepted = static_cast<std::size_t>(window.accepted);
    if (counts.accepted_by_position.size() < accepted) {
        counts.accepted_by_position.resize(accepted);
    }
    for (std::size_t i = 0; i < accepted; ++i) ++counts.accepted_by_position[i];
    if (counts.by_drafter.empty()) return;
    const DrafterCounts* most = &counts.by_drafter.front();
    for (DrafterCounts& one : counts.by_drafter) {
        if (one.name == window.source) {
            ++one.windows;
            one.drafted += window.rows - 1;
            one.accepted += window.accepted;
        }
        if (one.accepted > most->accepted) most = &one;
    }
    counts.kind = most->name;
}

}  // namespace strata
