// Places for things that live only part of the time: two may share bytes when they never live together.
//
// Each thing has a size and the first and last moment (inclusive) it must keep its bytes. plan() gives every one an
// offset and returns the bytes needed in all. Deterministic: the same list gives the same places.
//
// Of a few thousand things it takes the best of several orders: the larger first, each at the lowest place free over
// its whole life; in the order of birth, at the two ends in turn, if everything fits into the fullest moment's bytes
// that way (it does where no more than two things live at a time); by birth, by length of life, by both length and
// size; and by size. These look at every pair of things, so for many things only the last is used, which takes as long
// as sorting them: things of one size take over each other's places, so that each size has as many places as live at
// its own fullest moment, and what lives for a few moments only is placed separately. The steps of a pipeline repeat,
// and every size has its fullest moment at the same time: there this needs hardly more than the fullest moment has.
#pragma once
#include <cstdint>
#include <vector>

namespace lockstep {

class Lifetimes {
 public:
  explicit Lifetimes(std::int64_t alignment) : alignment_(alignment) {}

  int add(std::int64_t bytes, std::int64_t first, std::int64_t last);
  std::int64_t plan();
  std::int64_t offset(int id) const { return things_[static_cast<std::size_t>(id)].offset; }
  std::int64_t fullest_moment() const;  // the bytes that live together: no places need less

 private:
  struct Thing {
    std::int64_t bytes, first, last, offset;
  };
  template <class Size>
  std::int64_t most_at_a_time(Size&& size) const;
  std::vector<int> by_birth() const;
  // Gives up, with some places unset, as soon as it needs no less than that.
  std::int64_t place_in_order(const std::vector<int>& order, std::int64_t less_than);
  bool place_at_both_ends(std::int64_t room);
  std::int64_t place_by_size();

  std::int64_t alignment_;
  std::vector<Thing> things_;
};

}  // namespace lockstep
