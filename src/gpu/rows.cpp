#include "gpu/rows.h"

namespace strobe::gpu {

const Row* find_row(std::string_view name, std::span<const Row> table) {
  for (const Row& row : table) {
    if (name == row.name) return &row;
  }
  return nullptr;
}

bool row_fits(const Row& row, int capability) {
  // sm_90a and sm_100a code runs on its own generation alone; compiled at run time, the source of a
  // generation serves all its members (sm_103a from the source for 100).
  return row.arch_specific() ? row.arch / 10 == capability / 10 : row.arch <= capability;
}

const Image* choose_image(const Row& row, int capability) {
  const Image* ptx = nullptr;
  for (const Image& image : row.images) {
    if (image.kind == ImageKind::kPtx) {
      if (image.arch <= capability) ptx = &image;
    } else if (row.arch_specific()
                   ? image.arch == capability
                   : image.arch / 10 == capability / 10 && image.arch <= capability) {
      return &image;  // machine code runs on later members of its generation
    }
  }
  return ptx;
}

std::string row_source(const Row& row) {
  std::string text = "#include \"isa/kernel.h\"\n#include \"";
  return text.append(row.header)
      .append("\"\nSTROBE_KERNEL(")
      .append(row.name)
      .append(", ")
      .append(row.type)
      .append(")\n");
}

}  // namespace strobe::gpu
