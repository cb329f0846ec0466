#include <vector>

#include "reference/passes.h"
#include "reference/scores.h"

namespace strobe::reference {

void merge(const strobe_problem& p, const strobe_run_args& args) {
  const strobe_dtype partial_dtype = p.partial_dtype == STROBE_NONE ? p.dtype : p.partial_dtype;
  const strobe_dtype aux = aux_dtype(p.dtype);
  const Extent extent = q_extent(p);
  std::vector<double> part_lse(p.partials), part(p.head_dim_v), o(p.head_dim_v);

  for (std::int64_t batch = 0; batch < extent.batch; ++batch) {
    for (std::int64_t row = 0; row < extent.rows; ++row) {
      for (std::int64_t head = 0; head < p.heads; ++head) {
        const std::int64_t lse_index = offset_of(p.lse_strides, batch, row, head);
        for (int n = 0; n < p.partials; ++n) {
          part_lse[n] = load(args.partial_lse[n], aux, lse_index);
        }
        const ExpSum total = exp_sum(part_lse.data(), p.partials, -kInfinity);
        o.assign(p.head_dim_v, 0);
        for (int n = 0; n < p.partials; ++n) {
          if (part_lse[n] == -kInfinity) continue;
          load_rows(args.partial_o[n], partial_dtype, p.o_strides, batch, row, 1, head,
                    p.head_dim_v, part.data());
          add_scaled(total.share(part_lse[n]), part.data(), p.head_dim_v, o.data());
        }
        store_rows(args.o, p.dtype, p.o_strides, batch, row, 1, head, p.head_dim_v, o.data());
        if (args.lse) store(args.lse, aux, lse_index, total.log());
      }
    }
  }
}

}  // namespace strobe::reference
