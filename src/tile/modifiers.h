// What else may happen to the scores of a query tile: softcap, ALiBi, bias, masks, dropout, in the
// order of docs/numerics.md. Kernels with Features::kFull alone have this code.
#ifndef STROBE_SRC_TILE_MODIFIERS_H_
#define STROBE_SRC_TILE_MODIFIERS_H_

#include "core/philox.h"
#include "isa/isa.h"
#include "kernels/params.h"

namespace strobe::STROBE_TARGET {

using kernels::Modifiers;

// tanh by the exponential: within a few units in the last place of 1.
STROBE_DEVICE f32 tanh(f32 x) {
  const f32 e = isa::ex2(2.0f * 1.44269504088896341f * isa::min(x, 15.0f));
  return 1.0f - 2.0f * isa::rcp(e + 1.0f);
}

// One row's view of the modifiers.
template <class T>
struct RowModifiers {
  const Modifiers& mod;
  f32 slope = 0;
  int diagonal = 0;               // key on the diagonal of this row
  const T* bias = nullptr;        // this row's, of the problem's dtype,
  const f32* bias_f32 = nullptr;  // or float32
  const u8* mask = nullptr;

  STROBE_DEVICE RowModifiers(const Modifiers& m, int b, int h, int i, int offset, Here here = {})
      : mod(m), diagonal(i + offset) {
    if (m.alibi) slope = isa::ld_global(m.alibi + b * m.alibi_batch + h, here);
    if (m.bias.data) {
      const i64 at = b * m.bias.batch + h * m.bias.head + i * m.bias.row;
      if (m.bias.is_f32) {
        bias_f32 = static_cast<const f32*>(m.bias.data) + at;
      } else {
        bias = static_cast<const T*>(m.bias.data) + at;
      }
    }
    if (m.mask.data) {
      mask =
          static_cast<const u8*>(m.mask.data) + b * m.mask.batch + h * m.mask.head + i * m.mask.row;
    }
  }

  // The score of key j, from scale * q.k; the key lies inside the band. slope_of_cap, if given,
  // receives the derivative of the softcap.
  STROBE_DEVICE f32 score(f32 x, int j, f32* slope_of_cap = nullptr, Here here = {}) const {
    if (mod.softcap > 0) {
      const f32 t = tanh(x / mod.softcap);
      if (slope_of_cap) *slope_of_cap = 1.0f - t * t;
      x = mod.softcap * t;
    }
    const int distance = diagonal - j;
    if (mod.alibi) x -= slope * static_cast<f32>(distance < 0 ? -distance : distance);
    if (bias_f32) x += isa::ld_global(bias_f32 + j, here);
    if (bias) x += isa::to_float(isa::ld_global(bias + j, here));
    if (mask && isa::ld_global(mask + j, here) == 0) x = -core::infinity();
    isa::count(core::Op::kOther);
    return x;
  }
};

// Dropout factors of one row: 1 / (1 - p) where an element is kept, 0 where it is not.
struct RowDropout {
  core::PhiloxBlock stream;
  u32 i;

  STROBE_DEVICE RowDropout(const Modifiers& m, u64 batch_head, int query, Here here = {})
      : i(static_cast<u32>(query)) {
    const u64 seed = m.state ? isa::ld_global(m.state, here) : m.seed;
    const u64 offset = m.state ? isa::ld_global(m.state + 1, here) : m.offset;
    stream = core::dropout_stream(seed, offset, batch_head);
  }
  // Of keys j and j + 1, j even.
  STROBE_DEVICE void pair(const Modifiers& m, int j, f32& first, f32& second) const {
    const core::PhiloxBlock bits = core::dropout_bits(stream, i, static_cast<u32>(j / 8));
    const u32 e = static_cast<u32>(j % 8);
    first = core::dropout_draw(bits, e) >= m.keep_threshold ? m.keep_scale : 0.0f;
    second = core::dropout_draw(bits, e + 1) >= m.keep_threshold ? m.keep_scale : 0.0f;
  }
};

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_SRC_TILE_MODIFIERS_H_
