#include "engine/checkpoints.h"

#include <algorithm>
#include <set>
#include <utility>

namespace strata {
namespace {

using Stretches = std::vector<std::shared_ptr<const Checkpoints::Stretch>>;

// Those of `placed` that some checkpoint still holds, up to the first that none does.
Stretches still_there(const Checkpoints::Placed& placed) {
    Stretches there;
    for (const auto& one : placed) {
        auto held = one.lock();
        if (!held) break;
        there.push_back(std::move(held));
    }
    return there;
}

std::int64_t rows_of(const Stretches& stretches) {
    return stretches.empty() ? 0 : stretches.back()->last;
}

}  // namespace

std::uint64_t Checkpoints::own_bytes(const Checkpoint& one) {
    return one.moment.size() + one.drafter.size() + one.logits.size() * sizeof(float) +
           one.tokens.size() * sizeof(std::int32_t);
}

std::uint64_t Checkpoints::bytes() const {
    std::uint64_t bytes = 0;
    std::set<const Stretch*> counted;
    for (const Checkpoint& one : all_) {
        bytes += own_bytes(one);
        for (const auto& stretch : one.stretches) {
            if (counted.insert(stretch.get()).second) bytes += stretch->cells.size();
        }
    }
    return bytes;
}

const Checkpoints::Checkpoint* Checkpoints::find(std::span<const std::int32_t> prompt, bool mtp,
                                                 std::int64_t least) {
    Checkpoint* best = nullptr;
    for (Checkpoint& one : all_) {
        const auto length = static_cast<std::int64_t>(one.tokens.size());
        if (one.mtp != mtp || length <= least || !begins_with(prompt, one.tokens)) continue;
        if (one.tokens.size() == prompt.size() && one.logits.empty()) continue;
        least = length;
        best = &one;
    }
    if (best != nullptr) best->used = ++clock_;
    return best;
}

void Checkpoints::restore(const Checkpoint& from, model::Target& target, model::Sequence& sequence,
                          Placed& placed) {
    std::size_t same = 0;
    while (same < placed.size() && same < from.stretches.size() &&
           placed[same].lock() == from.stretches[same]) {
        ++same;
    }
    placed.assign(from.stretches.begin(), from.stretches.end());
    for (const auto& stretch : std::span(from.stretches).subspan(same)) {
        target.restore_rows(sequence, stretch->first, stretch->last, stretch->cells);
    }
    target.restore_moment(sequence, from.tokens, from.moment);
}

bool Checkpoints::make_room(const model::Target& target, const model::Sequence& sequence,
                            const Placed& placed, std::uint64_t more, Stretches& there) {
    const model::Config& config = target.config();
    const model::SequenceOptions& options = sequence.options();
    const std::uint64_t moment = model::Sequence::moment_bytes(config, options);
    const auto cells = [&](std::int64_t rows) {
        return model::Sequence::rows_bytes(config, options, rows);
    };
    const std::uint64_t whole = cells(sequence.length());
    if (moment + whole + more > bytes_max_) return false;
    while (true) {
        there = still_there(placed);
        const std::uint64_t wanted = moment + more + whole - cells(rows_of(there));
        if (bytes() + wanted <= bytes_max_) return true;
        there.clear();
        all_.erase(std::min_element(
            all_.begin(), all_.end(),
            [](const Checkpoint& a, const Checkpoint& b) { return a.used < b.used; }));
    }
}

void Checkpoints::keep(model::Target& target, model::Sequence& sequence, Placed& placed,
                       Beside beside) {
    if (!enabled() || sequence.length() == 0) return;
    Checkpoint one;
    one.mtp = sequence.options().mtp;
    one.tokens.assign(sequence.tokens().begin(), sequence.tokens().end());
    one.logits.assign(beside.logits.begin(), beside.logits.end());
    one.drafter = std::move(beside.drafter);
    const auto same = std::find_if(all_.begin(), all_.end(), [&](const Checkpoint& old) {
        return old.mtp == one.mtp && old.tokens == one.tokens;
    });
    if (same != all_.end()) {
        same->used = ++clock_;
        if (!same->logits.empty() || one.logits.empty()) return;
        all_.erase(same);  // and kept anew, with its logits
    }
    if (!make_room(target, sequence, placed, own_bytes(one), one.stretches)) return;
    const std::int64_t first = rows_of(one.stretches);
    if (first < sequence.length()) {
        one.stretches.push_back(std::make_shared<const Stretch>(
            Stretch{first, sequence.length(), target.save_rows(sequence, first)}));
    }
    one.moment = target.save_moment(sequence);
    one.used = ++clock_;
    placed.assign(one.stretches.begin(), one.stretches.end());
    all_.push_back(std::move(one));
}

}  // namespace strata
