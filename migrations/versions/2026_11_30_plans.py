"""Plans, their events, and idempotency keys.

Revision ID: 0001
Revises: nothing
"""
import sqlalchemy as sa
from alembic import op

revision = '0001'
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table('idempotency_keys',
    sa.Column('owner', sa.String(length=64), nullable=False),
    sa.Column('route', sa.String(length=64), nullable=False),
    sa.Column('key', sa.String(length=255), nullable=False),
    sa.Column('request_hash', sa.String(length=64), nullable=False),
    sa.Column('status', sa.Integer(), nullable=True),
    sa.Column('headers', sa.LargeBinary(), nullable=True),
    sa.Column('body', sa.LargeBinary(), nullable=True),
    sa.Column('created_ms', sa.BigInteger(), nullable=False),
    sa.PrimaryKeyConstraint('owner', 'route', 'key', name=op.f('pk_idempotency_keys'))
    )
    with op.batch_alter_table('idempotency_keys', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_idempotency_keys_created_ms'), ['created_ms'], unique=False)

    op.create_table('plans',
    sa.Column('id', sa.String(length=32), nullable=False),
    sa.Column('owner', sa.String(length=64), nullable=False),
    sa.Column('cache_key', sa.String(length=64), nullable=False),
    sa.Column('request_key', sa.String(length=64), nullable=False),
    sa.Column('flight', sa.String(length=64), nullable=True),
    sa.Column('status', sa.String(length=16), nullable=False),
    sa.Column('outcome', sa.String(length=16), nullable=True),
    sa.Column('time_limit_s', sa.Float(), nullable=False),
    sa.Column('requesters', sa.Integer(), nullable=False),
    sa.Column('attempts', sa.Integer(), nullable=False),
    sa.Column('executor', sa.String(length=64), nullable=True),
    sa.Column('model_name', sa.String(length=253), nullable=False),
    sa.Column('cluster_name', sa.String(length=253), nullable=False),
    sa.Column('step_time_s', sa.Float(), nullable=True),
    sa.Column('versions', sa.LargeBinary(), nullable=False),
    sa.Column('request', sa.LargeBinary(), nullable=False),
    sa.Column('progress', sa.LargeBinary(), nullable=True),
    sa.Column('resource', sa.LargeBinary(), nullable=True),
    sa.Column('problem', sa.LargeBinary(), nullable=True),
    sa.Column('created_ms', sa.BigInteger(), nullable=False),
    sa.Column('started_ms', sa.BigInteger(), nullable=True),
    sa.Column('heartbeat_ms', sa.BigInteger(), nullable=True),
    sa.Column('finished_ms', sa.BigInteger(), nullable=True),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_plans')),
    sa.UniqueConstraint('flight', name=op.f('uq_plans_flight'))
    )
    with op.batch_alter_table('plans', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_plans_owner_cache_key'), ['owner', 'cache_key'], unique=False)
        batch_op.create_index(batch_op.f('ix_plans_owner_request_key'), ['owner', 'request_key'], unique=False)
        batch_op.create_index(batch_op.f('ix_plans_status'), ['status'], unique=False)

    op.create_table('plan_events',
    sa.Column('plan_id', sa.String(length=32), nullable=False),
    sa.Column('seq', sa.Integer(), autoincrement=False, nullable=False),
    sa.Column('body', sa.LargeBinary(), nullable=False),
    sa.ForeignKeyConstraint(['plan_id'], ['plans.id'], name=op.f('fk_plan_events_plan_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('plan_id', 'seq', name=op.f('pk_plan_events'))
    )


def downgrade() -> None:
    op.drop_table('plan_events')
    with op.batch_alter_table('plans', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_plans_status'))
        batch_op.drop_index(batch_op.f('ix_plans_owner_request_key'))
        batch_op.drop_index(batch_op.f('ix_plans_owner_cache_key'))

    op.drop_table('plans')
    with op.batch_alter_table('idempotency_keys', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_idempotency_keys_created_ms'))

    op.drop_table('idempotency_keys')
