#include <algorithm>
#include <numeric>
#include <string_view>

#include "base/text.h"
#include "synth/synth.h"

namespace strata::synth {
namespace {

void set_shared_by_all(dflash::Config& draft) {
    draft.epsilon = 1e-6f;
    draft.rope_base = 1e7;
    draft.block_size = 8;
    draft.conv_taps = 2;
}

// What the public draft of the full model has.
dflash::Config flash_next(const model::Config& target) {
    dflash::Config draft;
    draft.layers = 5;
    draft.feed_width = 7680;
    draft.heads = 32;
    draft.kv_heads = 8;
    draft.head_dim = 128;
    draft.window = 2048;
    draft.mask_token = 248070;
    draft.selector_rank = 256;
    draft.candidates = 16;
    draft.target_layers = dflash::spread_layers(target.layers);
    return draft;
}

dflash::Config tiny(const model::Config& target) {
    constexpr std::int64_t kTaps = 3;
    dflash::Config draft;
    draft.layers = 3;
    draft.feed_width = 192;
    draft.heads = 4;
    draft.kv_heads = 2;
    draft.head_dim = 32;
    draft.window = 48;
    draft.mask_token = 1000;
    draft.selector_rank = 16;
    draft.candidates = 8;
    draft.target_layers.resize(static_cast<std::size_t>(std::min(kTaps, target.layers)));
    std::iota(draft.target_layers.begin(), draft.target_layers.end(), std::int64_t{0});
    return draft;
}

void fit(const model::Config& target, dflash::Config& draft) {
    constexpr std::int64_t kGroup = 16;
    draft.hidden = target.hidden;
    draft.vocabulary = target.vocabulary;
    draft.context = target.context;
    draft.rotary_dim = draft.head_dim;
    draft.slides.assign(static_cast<std::size_t>(draft.layers), 1);
    draft.conv_group = static_cast<int>(std::gcd(kGroup, target.hidden));
    // The last token is one that byte_vocabulary leaves unused.
    draft.mask_token = std::min(draft.mask_token, target.vocabulary - 1);
    draft.candidates =
        static_cast<int>(std::min<std::int64_t>(draft.candidates, target.vocabulary));
}

}  // namespace

Result<dflash::Config> draft_preset(std::string_view name, const model::Config& target) {
    dflash::Config draft;
    if (name == "tiny") {
        draft = tiny(target);
    } else if (name == "flash-next") {
        draft = flash_next(target);
    } else {
        return STRATA_ERROR("there is no preset ", quote(name), ", wanted tiny or flash-next");
    }
    set_shared_by_all(draft);
    fit(target, draft);
    return draft;
}

}  // namespace strata::synth
