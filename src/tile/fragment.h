// Fragments of mma.sync m16n8k16 and how they are read from swizzled tiles.
#ifndef STROBE_SRC_TILE_FRAGMENT_H_
#define STROBE_SRC_TILE_FRAGMENT_H_

#include "isa/isa.h"
#include "tile/smem_tile.h"

namespace strobe::STROBE_TARGET {

// A warp's accumulator of kM x kN floats: 16 x 8 atoms. Lane l holds, of each atom, rows l / 4 and
// l / 4 + 8, columns 2 (l % 4) and the next.
template <int kM, int kN>
struct Accumulator {
  static constexpr int kMTiles = kM / 16, kNTiles = kN / 8;
  static constexpr int kRowsPerLane = 2 * kMTiles;
  f32 x[kMTiles][kNTiles][4];

  STROBE_DEVICE void clear() {
    STROBE_UNROLL
    for (int m = 0; m < kMTiles; ++m) {
      STROBE_UNROLL
      for (int n = 0; n < kNTiles; ++n) {
        STROBE_UNROLL
        for (int r = 0; r < 4; ++r) x[m][n][r] = 0;
      }
    }
  }

  // f(element, i, j): i counts this lane's rows (row(i) of the tile), j its columns.
  template <class F>
  STROBE_DEVICE void for_each(F f) {
    STROBE_UNROLL
    for (int m = 0; m < kMTiles; ++m) {
      STROBE_UNROLL
      for (int n = 0; n < kNTiles; ++n) {
        STROBE_UNROLL
        for (int r = 0; r < 4; ++r) f(x[m][n][r], 2 * m + r / 2, 2 * n + r % 2);
      }
    }
  }

  // The same over the `part`-th of kParts equal shares, to be worked on bit by bit.
  template <int kParts, class F>
  STROBE_DEVICE void for_share(int part, F f) {
    constexpr int kPairs = kMTiles * kNTiles * 2;  // of neighbours in a row
    STROBE_UNROLL
    for (int e = part * kPairs / kParts; e < (part + 1) * kPairs / kParts; ++e) {
      const int m = e / 2 % kMTiles, n = e / 2 / kMTiles, half = e % 2;
      f(x[m][n][2 * half], 2 * m + half, 2 * n);
      f(x[m][n][2 * half + 1], 2 * m + half, 2 * n + 1);
    }
  }

  // Row of the tile that is this lane's i-th, and column that is its j-th.
  STROBE_DEVICE static int row(int i, u32 lane) {
    return 16 * (i / 2) + 8 * (i % 2) + static_cast<int>(lane / 4);
  }
  STROBE_DEVICE static int col(int j, u32 lane) {
    return 8 * (j / 2) + j % 2 + 2 * static_cast<int>(lane % 4);
  }
};

// Operands of a product, read by ldmatrix from a tile: 16 x 16 of A, or 16 x 16 of B for columns
// 16 n ... 16 n + 15 of the product (registers 0, 1: its left half, 2, 3: its right). In ReadA and
// ReadB the inner dimension k runs along the tile's rows (Q and K of S = Q K^T), in the transposed
// ones down its columns (V of O = P V). m, n, k count sixteens from the tile's first_row on.
template <class Tile>
struct ReadA {
  TilePlace<Tile> place;
  STROBE_DEVICE ReadA(const Tile& tile, u32 lane, int first_row = 0)
      : place(tile, first_row + lane % 16, lane / 16) {}
  STROBE_DEVICE u32x4 operator()(int m, int k, Here here = {}) const {
    return isa::ldmatrix_x4(place.at(16 * m, 2 * k), here);
  }
};
template <class Tile>
struct ReadATransposed {
  TilePlace<Tile> place;
  STROBE_DEVICE ReadATransposed(const Tile& tile, u32 lane, int first_row = 0)
      : place(tile, first_row + lane % 8 + 8 * (lane / 16), lane / 8 % 2) {}
  STROBE_DEVICE u32x4 operator()(int m, int k, Here here = {}) const {
    return isa::ldmatrix_x4_trans(place.at(16 * k, 2 * m), here);
  }
};
template <class Tile>
struct ReadB {
  TilePlace<Tile> place;
  STROBE_DEVICE ReadB(const Tile& tile, u32 lane, int first_row = 0)
      : place(tile, first_row + lane % 8 + 8 * (lane / 16), lane / 8 % 2) {}
  STROBE_DEVICE u32x4 operator()(int n, int k, Here here = {}) const {
    return isa::ldmatrix_x4(place.at(16 * n, 2 * k), here);
  }
};
template <class Tile>
struct ReadBTransposed {
  TilePlace<Tile> place;
  STROBE_DEVICE ReadBTransposed(const Tile& tile, u32 lane, int first_row = 0)
      : place(tile, first_row + lane % 16, lane / 16) {}
  STROBE_DEVICE u32x4 operator()(int n, int k, Here here = {}) const {
    return isa::ldmatrix_x4_trans(place.at(16 * k, 2 * n), here);
  }
};

// Transposed operands from kWidth columns of a tile, `first` (a multiple of kWidth) on, as a warp
// of several takes its share of a product's columns: A where it gives the product's rows, else B.
template <class Tile, int kWidth>
struct ReadColumns {
  static constexpr bool kEven = (kWidth & (kWidth - 1)) == 0;  // no chunk carries into the next bit
  Tile tile;
  u32 row, chunk;

  STROBE_DEVICE static ReadColumns a(const Tile& tile, u32 lane, int first) {
    return {tile, lane % 8 + 8 * (lane / 16), lane / 8 % 2 + first / 8};
  }
  STROBE_DEVICE static ReadColumns b(const Tile& tile, u32 lane, int first) {
    return {tile, lane % 16, lane / 16 + first / 8};
  }
  STROBE_DEVICE u32x4 operator()(int mn, int k, Here here = {}) const {
    const u32 address = kEven ? TilePlace<Tile>(tile, row, chunk).at(16 * k, 2 * mn)
                              : tile.at(row + 16 * k, chunk + 2 * mn);
    return isa::ldmatrix_x4_trans(address, here);
  }
};

// The same one at a time, anywhere in the tile; rows and columns in elements, k in sixteens.
template <class Tile>
STROBE_DEVICE u32x4 load_a(const Tile& tile, int row, int k, u32 lane, Here here = {}) {
  return isa::ldmatrix_x4(tile.at(row + lane % 16, 2 * k + lane / 16), here);
}
template <class Tile>
STROBE_DEVICE u32x4 load_a_transposed(const Tile& tile, int m, int k, u32 lane, Here here = {}) {
  return isa::ldmatrix_x4_trans(tile.at(16 * k + lane % 8 + 8 * (lane / 16), m / 8 + lane / 8 % 2),
                                here);
}
template <class Tile>
STROBE_DEVICE u32x4 load_b(const Tile& tile, int n, int k, u32 lane, Here here = {}) {
  return isa::ldmatrix_x4(tile.at(n + lane % 8 + 8 * (lane / 16), 2 * k + lane / 8 % 2), here);
}
template <class Tile>
STROBE_DEVICE u32x4 load_b_transposed(const Tile& tile, int n, int k, u32 lane, Here here = {}) {
  return isa::ldmatrix_x4_trans(tile.at(16 * k + lane % 16, n / 8 + lane / 16), here);
}

// Whether a product adds to its accumulator or overwrites it.
enum class Accumulate { kNo, kYes };

// D = A B or D += A B over kK columns. a(m, k) and b(n, k) give the operands, b of the two atoms 2
// n and 2 n + 1; b is fetched one pair ahead of the products that use it. between(i), i = 0 ... kK
// / 16 * kN / 16 - 1, is other work of the warp, for the time in which the tensor core is busy.
template <class T, int kK, Accumulate kAccumulate, int kM, int kN, class A, class B, class Between>
STROBE_DEVICE void mma(Accumulator<kM, kN>& d, A a, B b, Between between, Here here = {}) {
  constexpr int kSteps = kK / 16, kMTiles = kM / 16, kPairs = kN / 16;
  u32x4 fa[kMTiles], fb[2];
  fb[0] = b(0, 0);
  STROBE_UNROLL
  for (int k = 0; k < kSteps; ++k) {
    STROBE_UNROLL
    for (int m = 0; m < kMTiles; ++m) fa[m] = a(m, k);
    STROBE_UNROLL
    for (int n = 0; n < kPairs; ++n) {
      const int i = k * kPairs + n;
      if (i + 1 < kSteps * kPairs) fb[(i + 1) % 2] = b((i + 1) % kPairs, (i + 1) / kPairs);
      STROBE_UNROLL
      for (int m = 0; m < kMTiles; ++m) {
        STROBE_UNROLL
        for (int half = 0; half < 2; ++half) {
          auto& x = d.x[m][2 * n + half];
          const u32 b0 = fb[i % 2][2 * half], b1 = fb[i % 2][2 * half + 1];
          if (kAccumulate == Accumulate::kNo && k == 0) {
            isa::mma_m16n8k16_first<T>(x, fa[m], b0, b1, here);
          } else {
            isa::mma_m16n8k16<T>(x, fa[m], b0, b1, here);
          }
        }
      }
      between(i);
    }
  }
}

template <class T, int kK, int kM, int kN, class A, class B>
STROBE_DEVICE void mma(Accumulator<kM, kN>& d, A a, B b, Here here = {}) {
  mma<T, kK, Accumulate::kYes>(
      d, a, b, [](int) {}, here);
}

// Accumulator columns [16 k, 16 k + 16) of rows m as operand A of a further product, rounded to T:
// the layouts agree, lane by lane.
template <class T, int kM, int kN>
STROBE_DEVICE u32x4 as_a(const Accumulator<kM, kN>& s, int m, int k) {
  const auto& left = s.x[m][2 * k];
  const auto& right = s.x[m][2 * k + 1];
  return {isa::pack<T>(left[0], left[1]), isa::pack<T>(left[2], left[3]),
          isa::pack<T>(right[0], right[1]), isa::pack<T>(right[2], right[3])};
}

// A warp's kM x kK operand A in registers.
template <class T, int kM, int kK>
struct OperandA {
  u32x4 x[kM / 16][kK / 16];

  STROBE_DEVICE void round(const Accumulator<kM, kK>& s) {
    STROBE_UNROLL
    for (int m = 0; m < kM / 16; ++m) {
      STROBE_UNROLL
      for (int k = 0; k < kK / 16; ++k) x[m][k] = as_a<T>(s, m, k);
    }
  }
};

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_SRC_TILE_FRAGMENT_H_
