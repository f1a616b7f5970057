// Who guesses in a session, and what came of it.
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "engine/parts.h"
#include "spec/auto_drafter.h"
#include "spec/dflash_drafter.h"
#include "spec/joined_drafter.h"
#include "spec/mtp.h"
#include "spec/suffix.h"

namespace strata {
namespace {

// Of the MTP layer, whose guesses take turns.
constexpr std::int64_t kRowsDefault = 4;
// Before anything is known: of first guesses that are right, and what the further rows of a block
// cost beside its first.
constexpr double kMtpShare = 0.65;
constexpr double kBlockShare = 0.6;
constexpr double kBlockSlope = 0.1;
// What an MTP guess takes beside a layer of the trunk: the fusion, the mixer and the head.
constexpr double kMtpLayers = 1.5;

spec::NeuralPrior mtp_prior(const model::Config& config) {
    spec::NeuralPrior prior;
    prior.cost = kMtpLayers / static_cast<double>(config.layers);
    prior.slope = 1;
    prior.share = kMtpShare;
    prior.count_max = kWindowMax - 1;
    return prior;
}

// Half of the head is much of what a guess takes, and the half of a byte-pair vocabulary that was
// merged first is nine tenths and more of a text.
std::int32_t frequent_end(const model::Config& config) {
    return static_cast<std::int32_t>((config.vocabulary + 1) / 2);
}

spec::NeuralPrior block_prior(const dflash::Config& draft, const model::Config& config) {
    spec::NeuralPrior prior;
    prior.cost = static_cast<double>(draft.layers) / static_cast<double>(config.layers);
    prior.slope = kBlockSlope;
    prior.share = kBlockShare;
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
        return STRATA_ERROR("the least confidence of a guess is ", shortest(floor),
                            ", wanted 0 to 1");
    }
    if (drafting.kind == DraftKind::dflash && dflash == nullptr) {
        return STRATA_ERROR("guesses of a DFlash2 draft were asked for, and none was loaded");
    }
    if (drafts_mtp(drafting) && !info.has_mtp) {
        return STRATA_ERROR(
            "the model ", quote(info.name),
            " has no MTP layer, and its guesses were asked for: --mtp FILE with one "
            "is wanted",
            drafting.kind == DraftKind::joined ? ", or a DFlash2 draft" : "");
    }
    return Ok{};
}

bool Engine::Parts::drafts_mtp(const Drafting& drafting) const {
    if (drafting.kind == DraftKind::joined) return dflash == nullptr;
    return drafting.kind == DraftKind::mtp || (drafting.kind == DraftKind::best && info.has_mtp);
}

Status Session::State::make_drafter() {
    const bool given = drafting.rows != 0;
    if (drafting.rows == 0 && drafting.kind == DraftKind::dflash) {
        drafting.rows = std::min(kWindowMax, parts.dflash->config().block_size);
    } else if (drafting.rows == 0) {
        drafting.rows = drafting.kind == DraftKind::mtp ? kRowsDefault : kWindowMax;
    }
    const bool block = parts.dflash != nullptr &&
                       (drafting.kind == DraftKind::dflash || drafting.kind == DraftKind::joined);
    const double default_floor = block ? kDflashConfidenceMin : 0;
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
        case DraftKind::joined: {
            STRATA_ASSIGN(drafter, make_joined(floor, given ? kWindowMax : kRowsDefault));
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

Result<std::unique_ptr<spec::Drafter>> Session::State::make_joined(float floor,
                                                                   std::int64_t mtp_rows) {
    std::unique_ptr<spec::Drafter> second;
    std::int64_t rows = kWindowMax;
    if (parts.dflash != nullptr) {
        STRATA_ASSIGN(second, make_dflash(floor));
    } else {
        second = std::make_unique<spec::MtpDrafter>(*parts.target, sequence, floor);
        rows = mtp_rows;
    }
    return std::unique_ptr<spec::Drafter>(std::make_unique<spec::JoinedDrafter>(
        std::make_unique<spec::SuffixDrafter>(), std::move(second), rows - 1));
}

Result<std::unique_ptr<spec::Drafter>> Session::State::make_best(float floor) {
    const model::Config& config = parts.target->config();
    std::vector<std::unique_ptr<spec::Drafter>> drafters;
    std::vector<spec::NeuralPrior> priors;
    if (parts.info.has_mtp) {
        drafters.push_back(std::make_unique<spec::MtpDrafter>(*parts.target, sequence, floor,
                                                              frequent_end(config)));
        priors.push_back(mtp_prior(config));
    }
    if (parts.dflash != nullptr) {
        STRATA_ASSIGN(auto block, make_dflash(floor));
        drafters.push_back(std::move(block));
        priors.push_back(block_prior(parts.dflash->config(), config));
    }
    if (parts.policy == nullptr) {
        auto policy = std::make_unique<spec::Policy>(priors);
        STRATA_TRY(calibrate(*policy, drafters, priors));
        parts.policy = std::move(policy);
    }
    return std::unique_ptr<spec::Drafter>(
        std::make_unique<spec::AutoDrafter>(std::move(drafters), *parts.policy));
}

void Session::State::begin_counts(DraftCounts& counts) const {
    if (!drafter) return;
    const bool best = drafting.kind == DraftKind::best;
    const bool joined = drafting.kind == DraftKind::joined;
    counts.kind = best || joined ? "none" : drafter->name();
    if (!best && !joined) return;
    counts.by_drafter = {{.name = "none"}, {.name = "suffix"}};
    if (parts.drafts_mtp(drafting)) counts.by_drafter.push_back({.name = "mtp"});
    if (parts.dflash != nullptr) counts.by_drafter.push_back({.name = "dflash"});
}

void Session::State::count(const spec::Verified& window, DraftCounts& counts) const {
    DraftCounts one;
    one.kind = counts.kind;
    one.windows = 1;
    one.drafted = window.rows - 1;
    one.accepted = window.accepted;
    one.accepted_by_position.assign(static_cast<std::size_t>(window.accepted), 1);
    one.draft_ms = window.draft_ms;
    one.verify_ms = window.verify_ms;
    if (!counts.by_drafter.empty()) {
        one.by_drafter = {{std::string(window.source), 1, one.drafted, one.accepted}};
    }
    add(one, counts);
}

void add(const DraftCounts& from, DraftCounts& to) {
    to.kind = from.kind;
    to.windows += from.windows;
    to.drafted += from.drafted;
    to.accepted += from.accepted;
    to.draft_ms += from.draft_ms;
    to.verify_ms += from.verify_ms;
    if (to.accepted_by_position.size() < from.accepted_by_position.size()) {
        to.accepted_by_position.resize(from.accepted_by_position.size());
    }
    for (std::size_t i = 0; i < from.accepted_by_position.size(); ++i) {
        to.accepted_by_position[i] += from.accepted_by_position[i];
    }
    for (const DrafterCounts& one : from.by_drafter) {
        auto own = std::find_if(to.by_drafter.begin(), to.by_drafter.end(),
                                [&](const DrafterCounts& c) { return c.name == one.name; });
        if (own == to.by_drafter.end()) {
            own = to.by_drafter.insert(own, {.name = one.name});
        }
        own->windows += one.windows;
        own->drafted += one.drafted;
        own->accepted += one.accepted;
    }
    if (to.by_drafter.empty()) return;
    to.kind = std::max_element(to.by_drafter.begin(), to.by_drafter.end(),
                               [](const DrafterCounts& a, const DrafterCounts& b) {
                                   return a.accepted < b.accepted;
                               })
                  ->name;
}

}  // namespace strata
