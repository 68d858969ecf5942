// A plugin of gcc for the second compilation of slave code. Most time of a
// program is spent in inner loops over arrays, whose addresses are known before
// the loop: first + step * iteration. Such a loop is compiled twice. Before it
// the checker is called once with all its addresses (see fast_path.h), and if
// none of them needs a check, the copy without calls for the accesses runs,
// which gcc optimises like any other loop. Everything else is left as it is.
#include "toolchain/sunway/emulator/check/fast_path.h"
// The headers of gcc, in their order.
#include <gcc-plugin.h>
#include <plugin-version.h>
//
#include <tree.h>
//
#include <gimple.h>
//
#include <basic-block.h>
#include <cfgloop.h>
#include <context.h>
#include <fold-const.h>
#include <gimple-iterator.h>
#include <gimplify-me.h>
#include <gimplify.h>
#include <internal-fn.h>
#include <ssa.h>
#include <tree-cfg.h>
#include <tree-into-ssa.h>
#include <tree-pass.h>
#include <tree-scalar-evolution.h>
#include <tree-ssa-loop-ivopts.h>
#include <tree-ssa-loop-niter.h>
#include <tree-ssa-loop.h>

__attribute__((visibility("default"))) int plugin_is_GPL_compatible;

namespace {

using swamp::sunway::check::kMostLoopAccesses;
using swamp::sunway::check::kOnlyLdm;

constexpr unsigned kFewIterations = 8;  // take less time than the call

// Access is the address of a load or store, or, with bytes 0, an index that
// must not be above `bound`, in iteration i: first + step * i.
struct Access {
  tree first, step;
  unsigned long kind;
  location_t place;
};

// Loop is an inner loop that can have a copy without tests.
struct Loop {
  explicit Loop(class loop* found) : loop(found) {}

  class loop* loop;
  tree latches = NULL_TREE;  // how often it returns to its beginning
  bool has_accesses = false;
  auto_vec<Access> different;
};

// bytes_of() returns the size of the access for which a function of the checker
// is called, or 0; the second half of the name is returned, too.
unsigned bytes_of(const gimple* call, bool* writes) {
  const tree function = gimple_call_fndecl(call);
  if (function == NULL_TREE || DECL_NAME(function) == NULL_TREE) return 0;
  const char* name = IDENTIFIER_POINTER(DECL_ASSEMBLER_NAME(function));
  unsigned bytes = 0;
  char end = 0;
  *writes = false;
  if (sscanf(name, "__tsan_read%u%c", &bytes, &end) == 1) return bytes;
  *writes = true;
  return sscanf(name, "__tsan_write%u%c", &bytes, &end) == 1 ? bytes : 0;
}

bool is_bound(const gimple* call) {
  return gimple_call_internal_p(call, IFN_UBSAN_BOUNDS);
}

// add() adds an access, or returns false if its addresses are not known before
// the loop.
bool add(Loop& found, tree value, unsigned long kind, location_t place) {
  affine_iv iv;
  if (!simple_iv(found.loop, found.loop, value, &iv, true)) return false;
  if (TREE_CODE(iv.step) != INTEGER_CST &&
      !expr_invariant_in_loop_p(found.loop, iv.step)) {
    return false;
  }
  for (Access& other : found.different) {
    // A load and a store of one element are one access.
    if ((other.kind | kOnlyLdm) != (kind | kOnlyLdm) ||
        !operand_equal_p(other.first, iv.base) ||
        !operand_equal_p(other.step, iv.step)) {
      continue;
    }
    other.kind |= kind;
    return true;
  }
  if (found.different.length() == kMostLoopAccesses) return false;
  found.different.safe_push({iv.base, iv.step, kind, place});
  return true;
}

// examine() returns whether a loop can have a copy without tests.
bool examine(Loop& found) {
  class loop* const loop = found.loop;
  const edge exit = single_exit(loop);
  tree_niter_desc iterations;
  if (exit == nullptr || !can_duplicate_loop_p(loop) ||
      !number_of_iterations_exit(loop, exit, &iterations, false) ||
      !integer_zerop(iterations.may_be_zero) ||
      (TREE_CODE(iterations.niter) == INTEGER_CST &&
       compare_tree_int(iterations.niter, kFewIterations) < 0)) {
    return false;
  }
  found.latches = iterations.niter;
  basic_block* const body = get_loop_body(loop);
  bool fits = true;
  for (unsigned i = 0; i < loop->num_nodes && fits; ++i) {
    for (gimple_stmt_iterator at = gsi_start_bb(body[i]);
         !gsi_end_p(at) && fits; gsi_next(&at)) {
      gimple* const stmt = gsi_stmt(at);
      if (gimple_code(stmt) == GIMPLE_ASM) fits = false;
      if (!is_gimple_call(stmt)) continue;
      bool writes = false;
      const unsigned bytes = bytes_of(stmt, &writes);
      if (is_bound(stmt)) {
        const tree bound = gimple_call_arg(stmt, 2);
        fits = TREE_CODE(bound) == INTEGER_CST && tree_fits_uhwi_p(bound) &&
               tree_to_uhwi(bound) < (1ul << 40) &&
               add(found, gimple_call_arg(stmt, 1), tree_to_uhwi(bound) << 16,
                   gimple_location(stmt));
      } else if (bytes != 0) {
        found.has_accesses = true;
        // What is read only in some iterations must not be logged as read.
        const bool always = dominated_by_p(CDI_DOMINATORS, exit->src, body[i]);
        fits = add(found, gimple_call_arg(stmt, 0),
                   bytes | (writes || !always ? kOnlyLdm : 0),
                   gimple_location(stmt));
      } else if ((gimple_call_flags(stmt) & ECF_CONST) == 0) {
        fits = false;
      }
    }
  }
  free(body);
  return fits && found.has_accesses;
}

tree declare(const char* name, tree result) {
  const tree type = build_varargs_function_type_list(
      result, long_unsigned_type_node, NULL_TREE);
  const tree function = build_fn_decl(name, type);
  TREE_NOTHROW(function) = 1;
  return function;
}

// value() computes an expression before the loop.
tree value(tree expression, gimple_seq* before) {
  gimple_seq code = nullptr;
  const tree result = force_gimple_operand(
      fold_convert(long_unsigned_type_node, unshare_expr(expression)), &code,
      true, NULL_TREE);
  gimple_seq_add_seq(before, code);
  return result;
}

tree constant(unsigned long number) {
  return build_int_cstu(long_unsigned_type_node, number);
}

// in_column_0() returns the same line with kColumnWithoutTests.
location_t in_column_0(location_t place) {
  if (LOCATION_LOCUS(place) <= BUILTINS_LOCATION) return place;
  const line_map_ordinary* map = nullptr;
  const location_t plain = linemap_resolve_location(
      line_table, LOCATION_LOCUS(place), LRK_MACRO_EXPANSION_POINT, &map);
  return set_block(linemap_position_for_line_and_column(
                       line_table, map, SOURCE_LINE(map, plain), 0),
                   LOCATION_BLOCK(place));
}

// remove_tests() removes the calls for accesses and indices.
void remove_tests(class loop* loop) {
  basic_block* const body = get_loop_body(loop);
  for (unsigned i = 0; i < loop->num_nodes; ++i) {
    for (gimple_stmt_iterator at = gsi_start_bb(body[i]); !gsi_end_p(at);) {
      gimple* const stmt = gsi_stmt(at);
      gimple_set_location(stmt, in_column_0(gimple_location(stmt)));
      bool writes = false;
      if (!is_gimple_call(stmt) ||
          (!is_bound(stmt) && bytes_of(stmt, &writes) == 0)) {
        gsi_next(&at);
        continue;
      }
      unlink_stmt_vdef(stmt);
      gsi_remove(&at, true);
      release_defs(stmt);
    }
  }
  free(body);
}

void change(Loop& found) {
  gimple_seq before = nullptr;
  const tree iterations =
      value(fold_build2(PLUS_EXPR, long_unsigned_type_node,
                        fold_convert(long_unsigned_type_node, found.latches),
                        constant(1)),
            &before);
  auto_vec<tree> arguments;
  arguments.safe_push(iterations);
  arguments.safe_push(constant(found.different.length()));
  for (Access& access : found.different) {
    access.first = value(access.first, &before);
    access.step = value(fold_convert(ssizetype, access.step), &before);
    arguments.safe_push(access.first);
    arguments.safe_push(access.step);
    arguments.safe_push(constant(access.kind));
  }
  gcall* const test = gimple_build_call_vec(
      declare("swamp_loop_needs_no_check", integer_type_node), arguments);
  const tree result = make_ssa_name(integer_type_node);
  gimple_call_set_lhs(test, result);
  gimple_set_location(test, found.different[0].place);
  gimple_seq_add_stmt(&before, test);
  gsi_insert_seq_on_edge_immediate(loop_preheader_edge(found.loop), before);

  initialize_original_copy_tables();
  basic_block condition = nullptr;
  const profile_probability likely = profile_probability::likely();
  class loop* const copy = loop_version(
      found.loop, build2(NE_EXPR, boolean_type_node, result, integer_zero_node),
      &condition, likely, likely.invert(), likely, likely.invert(), true);
  free_original_copy_tables();
  if (copy == nullptr) return;
  // Reads of main memory are logged, at their places.
  gimple_seq reads = nullptr;
  const tree log = declare("swamp_loop_reads", void_type_node);
  for (const Access& access : found.different) {
    const unsigned bytes = access.kind & 0xff;
    if (bytes == 0 || (access.kind & kOnlyLdm) != 0) continue;
    gcall* const call = gimple_build_call(log, 4, access.first, access.step,
                                          constant(bytes), iterations);
    gimple_set_location(call, access.place);
    gimple_seq_add_stmt(&reads, call);
  }
  remove_tests(found.loop);
  if (reads != nullptr) {
    gsi_insert_seq_on_edge_immediate(loop_preheader_edge(found.loop), reads);
  }
}

const pass_data kData = {GIMPLE_PASS,
                         "swamp_loops",
                         OPTGROUP_LOOP,
                         TV_NONE,
                         PROP_cfg | PROP_ssa,
                         0,
                         0,
                         0,
                         0};

// name_sizes() replaces the calls for what lies anywhere, which have the number of
// bytes as an argument, by those for aligned data of the same size: swcc puts
// tests before these, and their loops have copies.
void name_sizes(function* code) {
  constexpr built_in_function kCalls[2][5] = {
      {BUILT_IN_TSAN_READ1, BUILT_IN_TSAN_READ2, BUILT_IN_TSAN_READ4,
       BUILT_IN_TSAN_READ8, BUILT_IN_TSAN_READ16},
      {BUILT_IN_TSAN_WRITE1, BUILT_IN_TSAN_WRITE2, BUILT_IN_TSAN_WRITE4,
       BUILT_IN_TSAN_WRITE8, BUILT_IN_TSAN_WRITE16}};
  basic_block block;
  FOR_EACH_BB_FN(block, code) {
    for (gimple_stmt_iterator at = gsi_start_bb(block); !gsi_end_p(at);
         gsi_next(&at)) {
      gimple* const stmt = gsi_stmt(at);
      if (!is_gimple_call(stmt)) continue;
      const tree function = gimple_call_fndecl(stmt);
      if (function == NULL_TREE) continue;
      const bool writes =
          fndecl_built_in_p(function, BUILT_IN_TSAN_WRITE_RANGE);
      if (!writes && !fndecl_built_in_p(function, BUILT_IN_TSAN_READ_RANGE)) {
        continue;
      }
      const tree bytes = gimple_call_arg(stmt, 1);
      const int size = integer_pow2p(bytes) ? tree_log2(bytes) : -1;
      if (size < 0 || size > 4) continue;
      gcall* const call =
          gimple_build_call(builtin_decl_implicit(kCalls[writes][size]), 1,
                            gimple_call_arg(stmt, 0));
      gimple_set_location(call, gimple_location(stmt));
      gimple_move_vops(call, stmt);
      gsi_replace(&at, call, false);
    }
  }
}

class LoopPass : public gimple_opt_pass {
 public:
  explicit LoopPass(gcc::context* context) : gimple_opt_pass(kData, context) {}
  opt_pass* clone() override { return new LoopPass(m_ctxt); }
  bool gate(function*) override { return optimize > 0 && !optimize_debug; }
  unsigned execute(function* code) override {
    name_sizes(code);
    loop_optimizer_init(LOOPS_NORMAL | LOOPS_HAVE_RECORDED_EXITS);
    if (number_of_loops(code) > 1) {
      scev_initialize();
      auto_vec<class loop*> all;
      for (class loop* loop : loops_list(code, LI_ONLY_INNERMOST)) {
        all.safe_push(loop);
      }
      for (class loop* loop : all) {
        Loop found(loop);
        if (!optimize_loop_for_speed_p(loop) || !examine(found)) continue;
        change(found);
        update_ssa(TODO_update_ssa);
        scev_reset();
      }
      scev_finalize();
    }
    loop_optimizer_finalize();
    return 0;
  }
};

}  // namespace

__attribute__((visibility("default"))) int plugin_init(
    plugin_name_args* plugin, plugin_gcc_version* version) {
  // Another gcc than that of the headers compiles with all tests.
  if (!plugin_default_version_check(version, &gcc_version)) return 0;
  register_pass_info pass;
  pass.pass = new LoopPass(g);
  pass.reference_pass_name = "tsan";
  pass.ref_pass_instance_number = 0;
  pass.pos_op = PASS_POS_INSERT_AFTER;
  register_callback(plugin->base_name, PLUGIN_PASS_MANAGER_SETUP, nullptr,
                    &pass);
  return 0;
}
